// What the tensor memory accelerator knows about a tensor: made by the host, passed by value in the kernel's arguments.
struct alignas(64) TensorMap { u64 words[16]; };

// Copies a box of a tensor (dim, head, row, batch) to shared memory; elements outside of the tensor are zeros. Its bytes, those of the whole
// box, complete on `barrier`. The addresses of map and barrier are read later: both stay.
__device__ __forceinline__ void cp_async_bulk_tensor_4d_load(u32 to, const TensorMap& map, u32 barrier, i32 dim, i32 head, i32 row, i32 batch) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];"
               ::"r"(to), "l"(&map), "r"(barrier), "r"(dim), "r"(head), "r"(row), "r"(batch) : "memory");
}

// Copies a box to every CTA of `ctas` (a bit each) of the cluster, to the same address, completing on the same barrier of each.
__device__ __forceinline__ void cp_async_bulk_tensor_4d_load_multicast(u32 to, const TensorMap& map, u32 barrier, u16 ctas, i32 dim, i32 head,
                                                                       i32 row, i32 batch) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, %4, %5, %6}], [%2], %7;"
      ::"r"(to), "l"(&map), "r"(barrier), "r"(dim), "r"(head), "r"(row), "r"(batch), "h"(ctas) : "memory");
}

// The same of a tensor of five dimensions: (dim, head, row, size, batch).
__device__ __forceinline__ void cp_async_bulk_tensor_5d_load(u32 to, const TensorMap& map, u32 barrier, i32 dim, i32 head, i32 row, i32 size, i32 batch) {
  asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, %7}], [%2];"
               ::"r"(to), "l"(&map), "r"(barrier), "r"(dim), "r"(head), "r"(row), "r"(size), "r"(batch) : "memory");
}

// Copies bytes that follow each other to shared memory; they complete on `barrier`. Addresses and `bytes` are multiples of 16.
__device__ __forceinline__ void cp_async_bulk_load(u32 to, const void* from, u32 bytes, u32 barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               ::"r"(to), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}

// Copies bytes that follow each other from shared memory to the same CTA's or another one's of the cluster, where they complete on `barrier`. `to`
// and `barrier` are addresses in CTA `cta`; all are multiples of 16, but for the barrier's.
__device__ __forceinline__ void cp_async_bulk_copy_cluster(u32 to, u32 from, u32 bytes, u32 barrier, u32 cta) {
  asm volatile(
      "{\n"
      ".reg .b32 remote, remote_barrier;\n"
      "mapa.shared::cluster.u32 remote, %0, %4;\n"
      "mapa.shared::cluster.u32 remote_barrier, %3, %4;\n"
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [remote], [%1], %2, [remote_barrier];\n"
      "}" ::"r"(to), "r"(from), "r"(bytes), "r"(barrier), "r"(cta) : "memory");
}

// Copies a box from shared memory to a tensor; what lies beyond its end is not written. Unlike loads, stores may not begin before the tensor:
// that is an illegal instruction on an H200. Belongs to this thread's open bulk group.
__device__ __forceinline__ void cp_async_bulk_tensor_4d_store(const TensorMap& map, u32 from, i32 dim, i32 head, i32 row, i32 batch) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];"
               ::"l"(&map), "r"(from), "r"(dim), "r"(head), "r"(row), "r"(batch) : "memory");
}

// Adds floats that follow each other in shared memory to those in global memory, each as it comes: a sum's bits depend on who came before. Addresses
// and `bytes` are multiples of 16. Belongs to this thread's open bulk group.
__device__ __forceinline__ void cp_reduce_async_bulk_add_f32(float* to, u32 from, u32 bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes) : "memory");
}

__device__ __forceinline__ void cp_async_bulk_commit_group() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Waits until all but this thread's kPending youngest groups have read their shared memory.
template <int kPending>
__device__ __forceinline__ void cp_async_bulk_wait_group_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

__device__ __forceinline__ void prefetch_tensormap(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
