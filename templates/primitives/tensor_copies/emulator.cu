// What the tensor memory accelerator knows about a tensor: made by the host, passed by value in the kernel's arguments.
struct alignas(64) TensorMap { u64 words[16]; };

// Copies a box of a tensor (dim, head, row, batch) to shared memory; elements outside of the tensor are zeros. Its bytes, those of the whole
// box, complete on `barrier`. The addresses of map and barrier are read later: both stay.
inline void cp_async_bulk_tensor_4d_load(u32 to, const TensorMap& map, u32 barrier, i32 dim, i32 head, i32 row, i32 batch) {
  const i32 at[4] = {dim, head, row, batch};
  emulator.tensor_load("cp_async_bulk_tensor_4d_load", to, &map, barrier, kOwnCta, at, 4);
}

// Copies a box to every CTA of `ctas` (a bit each) of the cluster, to the same address, completing on the same barrier of each.
inline void cp_async_bulk_tensor_4d_load_multicast(u32 to, const TensorMap& map, u32 barrier, u16 ctas, i32 dim, i32 head, i32 row, i32 batch) {
  const i32 at[4] = {dim, head, row, batch};
  emulator.tensor_load("cp_async_bulk_tensor_4d_load_multicast", to, &map, barrier, ctas, at, 4);
}

// The same of a tensor of five dimensions: (dim, head, row, size, batch).
inline void cp_async_bulk_tensor_5d_load(u32 to, const TensorMap& map, u32 barrier, i32 dim, i32 head, i32 row, i32 size, i32 batch) {
  const i32 at[5] = {dim, head, row, size, batch};
  emulator.tensor_load("cp_async_bulk_tensor_5d_load", to, &map, barrier, kOwnCta, at, 5);
}

// Copies bytes that follow each other to shared memory; they complete on `barrier`. Addresses and `bytes` are multiples of 16.
inline void cp_async_bulk_load(u32 to, const void* from, u32 bytes, u32 barrier) { emulator.bulk_load("cp_async_bulk_load", to, from, bytes, barrier); }

// Copies bytes that follow each other from shared memory to the same CTA's or another one's of the cluster, where they complete on `barrier`. `to`
// and `barrier` are addresses in CTA `cta`; all are multiples of 16, but for the barrier's.
inline void cp_async_bulk_copy_cluster(u32 to, u32 from, u32 bytes, u32 barrier, u32 cta) {
  emulator.bulk_copy("cp_async_bulk_copy_cluster", to, from, bytes, barrier, cta);
}

// Copies a box from shared memory to a tensor; what lies outside of it is not written. Belongs to this thread's open bulk group.
inline void cp_async_bulk_tensor_4d_store(const TensorMap& map, u32 from, i32 dim, i32 head, i32 row, i32 batch) {
  const i32 at[4] = {dim, head, row, batch};
  emulator.tensor_store("cp_async_bulk_tensor_4d_store", &map, from, at);
}

// Adds floats that follow each other in shared memory to those in global memory, each as it comes: a sum's bits depend on who came before. Addresses
// and `bytes` are multiples of 16. Belongs to this thread's open bulk group.
inline void cp_reduce_async_bulk_add_f32(float* to, u32 from, u32 bytes) { emulator.bulk_add("cp_reduce_async_bulk_add_f32", to, from, bytes); }

inline void cp_async_bulk_commit_group() { emulator.bulk_commit(); }

// Waits until all but this thread's kPending youngest groups have read their shared memory.
template <int kPending>
inline void cp_async_bulk_wait_group_read() {
  emulator.bulk_wait_read(kPending);
}

inline void prefetch_tensormap(const TensorMap& map) { emulator.prefetch_tensor_map("prefetch_tensormap", &map); }
