__device__ __forceinline__ Vec4 ld_global_v4_b32(const void* from) {
  Vec4 r;
  asm volatile("ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "l"(from));
  return r;
}
__device__ __forceinline__ double ld_global_f64(const void* from) {
  double r;
  asm volatile("ld.global.nc.f64 %0, [%1];" : "=d"(r) : "l"(from));
  return r;
}
__device__ __forceinline__ void st_global_b64(void* to, u64 x) {
  asm volatile("st.global.b64 [%0], %1;" ::"l"(to), "l"(x) : "memory");
}
__device__ __forceinline__ void st_shared_b64(u32 to, u64 x) {
  asm volatile("st.shared.b64 [%0], %1;" ::"r"(to), "l"(x) : "memory");
}
__device__ __forceinline__ u64 ld_shared_b64(u32 from) {
  u64 r;
  asm volatile("ld.shared.b64 %0, [%1];" : "=l"(r) : "r"(from) : "memory");
  return r;
}

// Rounded one by one: the compiler contracts none of these with another.
__device__ __forceinline__ double add_rn_f64(double a, double b) { return __dadd_rn(a, b); }
__device__ __forceinline__ double mul_rn_f64(double a, double b) { return __dmul_rn(a, b); }
__device__ __forceinline__ double div_rn_f64(double a, double b) { return __ddiv_rn(a, b); }
__device__ __forceinline__ double sqrt_rn_f64(double x) { return __dsqrt_rn(x); }
__device__ __forceinline__ u64 bits_of_f64(double x) { return static_cast<u64>(__double_as_longlong(x)); }
__device__ __forceinline__ double f64_of_bits(u64 x) { return __longlong_as_double(static_cast<i64>(x)); }
