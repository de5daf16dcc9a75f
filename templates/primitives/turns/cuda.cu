__device__ __forceinline__ u32 atom_relaxed_gpu_global_add_u32(u32* to, u32 x) {
  u32 before;
  asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(to), "r"(x) : "memory");
  return before;
}
// What this thread's CTA has written, as far as a barrier told this thread, comes before x for those who see it by an acquire.
__device__ __forceinline__ void st_release_gpu_global_u32(u32* to, u32 x) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(x) : "memory");
}
// Returns when *from is x.
__device__ __forceinline__ void wait_acquire_gpu_global_u32(const u32* from, u32 x) {
  u32 seen;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(from) : "memory");
  } while (seen != x);
}
