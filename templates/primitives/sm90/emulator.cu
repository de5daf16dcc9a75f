// Tells the emulator to watch shared memory for accesses of both proxies.
extern "C" __attribute__((visibility("default"))) const bool attune_emulator_sm90 = true;

// What the tensor memory accelerator knows about a tensor: made by the host, passed by value in the kernel's arguments.
struct alignas(64) TensorMap { u64 words[16]; };

constexpr u32 kOwnCta = 0xffffffffu;  // of the running thread

// mbarriers: 64-bit objects in shared memory that complete a phase when `arrivals` threads have arrived and all expected bytes have landed.
inline void mbarrier_init(u32 barrier, u32 arrivals) { emulator.mbarrier_init("mbarrier_init", barrier, arrivals); }
// Makes initialised barriers visible to the cluster and to TMA.
inline void fence_mbarrier_init() { emulator.mbarrier_fence(); }
inline void mbarrier_arrive(u32 barrier) { emulator.mbarrier_arrive("mbarrier_arrive", barrier, kOwnCta, 0); }
// The same barrier of CTA `cta` of the cluster.
inline void mbarrier_arrive_cluster(u32 barrier, u32 cta) { emulator.mbarrier_arrive("mbarrier_arrive_cluster", barrier, cta, 0); }
inline void mbarrier_arrive_expect_tx(u32 barrier, u32 bytes) {
  emulator.mbarrier_arrive("mbarrier_arrive_expect_tx", barrier, kOwnCta, bytes);
}
// Stores x in shared memory of CTA `cta` of the cluster; its 4 bytes complete on that CTA's barrier.
inline void st_async_cluster_b32(u32 to, u32 x, u32 barrier, u32 cta) {
  emulator.store_async("st_async_cluster_b32", to, x, barrier, cta);
}
// Whether the phase of this parity has completed; waits a while for it.
inline bool mbarrier_try_wait_parity(u32 barrier, u32 parity) {
  return emulator.mbarrier_wait("mbarrier_try_wait_parity", barrier, parity, false);
}
inline void mbarrier_wait_parity(u32 barrier, u32 parity) { emulator.mbarrier_wait("mbarrier_wait_parity", barrier, parity, true); }

// Named barriers of the CTA, 1 to 15 (0 is bar_sync's): `threads` of it arrive, those that sync also wait.
inline void bar_sync_named(u32 name, u32 threads) { emulator.named_barrier("bar_sync_named", name, threads, true); }
inline void bar_arrive_named(u32 name, u32 threads) { emulator.named_barrier("bar_arrive_named", name, threads, false); }

// Copies a box of a tensor (dim, head, row, batch) to shared memory; elements outside of the tensor are zeros. Its bytes, those of the whole
// box, complete on `barrier`. The addresses of map and barrier are read later: both stay.
inline void cp_async_bulk_tensor_4d_load(u32 to, const TensorMap& map, u32 barrier, i32 dim, i32 head, i32 row, i32 batch) {
  const i32 at[4] = {dim, head, row, batch};
  emulator.tensor_load("cp_async_bulk_tensor_4d_load", to, &map, barrier, kOwnCta, at);
}
// The same to every CTA of `ctas` (a bit each) of the cluster, at the same address, completing on the same barrier of each.
inline void cp_async_bulk_tensor_4d_load_multicast(u32 to, const TensorMap& map, u32 barrier, u16 ctas, i32 dim, i32 head, i32 row, i32 batch) {
  const i32 at[4] = {dim, head, row, batch};
  emulator.tensor_load("cp_async_bulk_tensor_4d_load_multicast", to, &map, barrier, ctas, at);
}
// Copies a box from shared memory to a tensor; what lies outside of it is not written. Belongs to this thread's open bulk group.
inline void cp_async_bulk_tensor_4d_store(const TensorMap& map, u32 from, i32 dim, i32 head, i32 row, i32 batch) {
  const i32 at[4] = {dim, head, row, batch};
  emulator.tensor_store("cp_async_bulk_tensor_4d_store", &map, from, at);
}
inline void cp_async_bulk_commit_group() { emulator.bulk_commit(); }
// Waits until all but this thread's kPending youngest groups have read their shared memory.
template <int kPending>
inline void cp_async_bulk_wait_group_read() {
  emulator.bulk_wait_read(kPending);
}
inline void prefetch_tensormap(const TensorMap& map) { emulator.prefetch_tensor_map("prefetch_tensormap", &map); }
// This thread's ordinary accesses to shared memory before it come before accesses by wgmma and TMA that are ordered after it.
inline void fence_proxy_async() { emulator.proxy_fence(); }

// Registers of each thread of the warpgroup from here on. The launch must have taken as many for all of them together.
template <int kRegisters>
inline void setmaxnreg_dec() {
  emulator.set_registers("setmaxnreg_dec", kRegisters);
}
template <int kRegisters>
inline void setmaxnreg_inc() {
  emulator.set_registers("setmaxnreg_inc", kRegisters);
}

inline u32 cluster_cta_rank() { return emulator.cluster_rank(); }
// All threads of all CTAs of the cluster.
inline void barrier_cluster_sync() { emulator.cluster_barrier("barrier_cluster_sync"); }
inline u32 grid_size() { return emulator.grid_size(); }
inline u32 atom_global_add_u32(u32* to, u32 x) {
  return __atomic_fetch_add(static_cast<u32*>(emulator.global_memory("atom_global_add_u32", to, sizeof(u32), true)), x, __ATOMIC_RELAXED);
}

inline i32 computed_anew(i32 x) { return x; }

// 8x8 matrices of 16-bit elements: lanes 8 i .. 8 i + 7 give the row addresses of matrix i; lane l gives of each matrix the elements
// (row l / 4, columns 2 (l % 4) and + 1).
inline void stmatrix_x4(u32 row, const u32 (&r)[4]) { emulator.store_matrices("stmatrix_x4", r, row, 4); }

// NaN where one of the two is.
inline float max_nan_f32(float a, float b) { return a != a || b != b ? a + b : max_f32(a, b); }
inline float min_nan_f32(float a, float b) { return a != a || b != b ? a + b : -max_f32(-a, -b); }
inline u32 f32_to_bits(float x) { return bits_of_float(x); }
inline float bits_to_f32(u32 x) { return float_of_bits(x); }

// wgmma: products of a warpgroup. It runs beside the threads that issue it: registers of d and a, and the shared memory that descriptors
// name, are its own from the issue until a wait_group that covers it. The arrays of d and a must live until then.
// Orders accesses to registers before it with products after it.
inline void wgmma_fence() { emulator.wgmma_fence(); }
inline void wgmma_commit_group() { emulator.wgmma_commit(); }
// Waits until at most kPending of the youngest groups are under way.
template <int kPending>
inline void wgmma_wait_group() {
  emulator.wgmma_wait("wgmma_wait_group", kPending);
}
// After a wait_group: the compiler sees no link between it and the registers that it completes; here it does.
template <i32 kRegisters>
inline void wgmma_landed(float (&)[kRegisters]) {}

enum class WgmmaType : u32 { f16, bf16 };
constexpr u32 wgmma_flags(bool accumulate, bool transposed) {
  return (accumulate ? 1u : 0u) | (transposed ? 2u : 0u) | (WgmmaType::${dtype} == WgmmaType::bf16 ? 4u : 0u);
}

// d = a b, or d += a b with kAccumulate: m64nNk16, N twice the registers of d. Warp w of the warpgroup holds of d the rows 16 w to 16 w + 15 as
// fragments of m16n8: d[4 n + i] is row lane / 4 + 8 (i / 2), column 8 n + 2 (lane % 4) + i % 2. b is K-major, or MN-major (kTransposed).
//% for wgmma_shapes
template <bool kAccumulate, bool kTransposed>
inline void wgmma_ss(float (&d)[${wgmma_shapes.registers}], u64 a_descriptor, u64 b_descriptor) {
  emulator.wgmma("wgmma_ss", d, ${wgmma_shapes.n}, nullptr, a_descriptor, b_descriptor, wgmma_flags(kAccumulate, kTransposed));
}
// The same with a from registers: its fragment is a[4 step], ... a[4 step + 3].
template <bool kAccumulate, bool kTransposed, i32 kFragments>
inline void wgmma_rs(float (&d)[${wgmma_shapes.registers}], const u32 (&a)[kFragments], i32 step, u64 b_descriptor) {
  emulator.wgmma("wgmma_rs", d, ${wgmma_shapes.n}, a + 4 * step, 0, b_descriptor, wgmma_flags(kAccumulate, kTransposed));
}
//% end
