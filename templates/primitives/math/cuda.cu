__device__ __forceinline__ float fma_rn_f32(float a, float b, float c) { return __fmaf_rn(a, b, c); }
__device__ __forceinline__ float max_f32(float a, float b) { return fmaxf(a, b); }
__device__ __forceinline__ float ex2_approx_ftz_f32(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
__device__ __forceinline__ float lg2_approx_ftz_f32(float x) {
  float r;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
__device__ __forceinline__ float rcp_approx_ftz_f32(float x) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
// Two floats rounded to 16 bits: `high` to the upper half (PTX's operand order).
__device__ __forceinline__ u32 cvt_rn_bf16x2_f32(float high, float low) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
__device__ __forceinline__ u32 cvt_rn_f16x2_f32(float high, float low) {
  u32 r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
__device__ __forceinline__ double cvt_f64_bf16(u16 x) { return static_cast<double>(__uint_as_float(static_cast<u32>(x) << 16)); }
__device__ __forceinline__ double cvt_f64_f16(u16 x) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x));
  return static_cast<double>(r);
}
__device__ __forceinline__ double fma_rn_f64(double a, double b, double c) { return __fma_rn(a, b, c); }
__device__ __forceinline__ double max_f64(double a, double b) { return fmax(a, b); }
__device__ __forceinline__ double exp_f64(double x) { return exp(x); }
__device__ __forceinline__ double log_f64(double x) { return log(x); }
__device__ __forceinline__ double negative_infinity_f64() { return static_cast<double>(__int_as_float(0xff800000)); }
