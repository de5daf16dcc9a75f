struct alignas(8) Vec2F32 { float x, y; };

// Memory that the kernel itself writes: no .nc, whose cache may hold what was there before.
__device__ __forceinline__ float ld_weak_global_f32(const float* from) {
  float r;
  asm volatile("ld.weak.global.f32 %0, [%1];" : "=f"(r) : "l"(from) : "memory");
  return r;
}
__device__ __forceinline__ Vec2F32 ld_weak_global_v2_f32(const float* from) {
  Vec2F32 r;
  asm volatile("ld.weak.global.v2.f32 {%0, %1}, [%2];" : "=f"(r.x), "=f"(r.y) : "l"(from) : "memory");
  return r;
}
__device__ __forceinline__ void st_global_v2_f32(float* to, Vec2F32 x) {
  asm volatile("st.global.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(x.x), "f"(x.y) : "memory");
}
