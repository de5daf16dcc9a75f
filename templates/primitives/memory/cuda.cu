struct alignas(16) Vec4 { u32 x, y, z, w; };  // 16 bytes: eight 16-bit elements

// Address of the CTA's dynamic shared memory in the shared window; all shared addresses are such 32-bit numbers.
__device__ __forceinline__ u32 shared_base() {
  extern __shared__ __align__(1024) unsigned char dynamic_shared[];
  return static_cast<u32>(__cvta_generic_to_shared(dynamic_shared));
}

__device__ __forceinline__ u16 ld_global_b16(const void* from) {
  u16 r;
  asm volatile("ld.global.nc.b16 %0, [%1];" : "=h"(r) : "l"(from));
  return r;
}
__device__ __forceinline__ void st_global_b16(void* to, u16 x) {
  asm volatile("st.global.b16 [%0], %1;" ::"l"(to), "h"(x) : "memory");
}
__device__ __forceinline__ void st_global_b32(void* to, u32 x) {
  asm volatile("st.global.b32 [%0], %1;" ::"l"(to), "r"(x) : "memory");
}
__device__ __forceinline__ void st_global_f32(void* to, float x) {
  asm volatile("st.global.f32 [%0], %1;" ::"l"(to), "f"(x) : "memory");
}
__device__ __forceinline__ void st_global_f64(void* to, double x) {
  asm volatile("st.global.f64 [%0], %1;" ::"l"(to), "d"(x) : "memory");
}
__device__ __forceinline__ void st_global_v4_b32(void* to, Vec4 x) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
}

__device__ __forceinline__ void st_shared_b32(u32 to, u32 x) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(x) : "memory");
}
__device__ __forceinline__ u32 ld_shared_b32(u32 from) {
  u32 r;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(r) : "r"(from) : "memory");
  return r;
}
__device__ __forceinline__ void st_shared_v4_b32(u32 to, Vec4 x) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
}
__device__ __forceinline__ Vec4 ld_shared_v4_b32(u32 from) {
  Vec4 r;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "r"(from) : "memory");
  return r;
}
__device__ __forceinline__ void st_shared_f64(u32 to, double x) {
  asm volatile("st.shared.f64 [%0], %1;" ::"r"(to), "d"(x) : "memory");
}
__device__ __forceinline__ double ld_shared_f64(u32 from) {
  double r;
  asm volatile("ld.shared.f64 %0, [%1];" : "=d"(r) : "r"(from) : "memory");
  return r;
}

// All threads of the CTA.
__device__ __forceinline__ void bar_sync() { asm volatile("bar.sync 0;" ::: "memory"); }
// All lanes of the warp; orders their accesses to shared memory.
__device__ __forceinline__ void bar_warp_sync() { __syncwarp(); }
