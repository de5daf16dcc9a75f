inline u32 atom_relaxed_gpu_global_add_u32(u32* to, u32 x) {
  return __atomic_fetch_add(static_cast<u32*>(emulator.global_memory("atom_relaxed_gpu_global_add_u32", to, sizeof(u32), true)), x,
                            __ATOMIC_RELAXED);
}
// What this thread's CTA has written, as far as a barrier told this thread, comes before x for those who see it by an acquire.
inline void st_release_gpu_global_u32(u32* to, u32 x) {
  __atomic_store_n(static_cast<u32*>(emulator.global_memory("st_release_gpu_global_u32", to, sizeof(u32), true)), x, __ATOMIC_RELEASE);
}
// Returns when *from is x.
inline void wait_acquire_gpu_global_u32(const u32* from, u32 x) { emulator.wait_global("wait_acquire_gpu_global_u32", from, x); }
