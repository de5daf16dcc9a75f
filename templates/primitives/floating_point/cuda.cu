// Rounded one by one: the compiler contracts none of these with another.
__device__ __forceinline__ double add_rn_f64(double a, double b) { return __dadd_rn(a, b); }
__device__ __forceinline__ double mul_rn_f64(double a, double b) { return __dmul_rn(a, b); }
__device__ __forceinline__ double div_rn_f64(double a, double b) { return __ddiv_rn(a, b); }
__device__ __forceinline__ double sqrt_rn_f64(double x) { return __dsqrt_rn(x); }

__device__ __forceinline__ u64 bits_of_f64(double x) { return static_cast<u64>(__double_as_longlong(x)); }
__device__ __forceinline__ double f64_of_bits(u64 x) { return __longlong_as_double(static_cast<i64>(x)); }

__device__ __forceinline__ float fma_rn_f32(float a, float b, float c) { return __fmaf_rn(a, b, c); }
// Clamped to [0, 1]; NaN becomes 0.
__device__ __forceinline__ float fma_rn_sat_f32(float a, float b, float c) {
  float r;
  asm("fma.rn.sat.f32 %0, %1, %2, %3;" : "=f"(r) : "f"(a), "f"(b), "f"(c));
  return r;
}
__device__ __forceinline__ float max_f32(float a, float b) { return fmaxf(a, b); }
__device__ __forceinline__ float abs_f32(float x) { return fabsf(x); }

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

// PTX promises 2^-11 of the result.
__device__ __forceinline__ float tanh_approx_f32(float x) {
  float r;
  asm("tanh.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

__device__ __forceinline__ double fma_rn_f64(double a, double b, double c) { return __fma_rn(a, b, c); }
__device__ __forceinline__ double max_f64(double a, double b) { return fmax(a, b); }
__device__ __forceinline__ double exp_f64(double x) { return exp(x); }
__device__ __forceinline__ double log_f64(double x) { return log(x); }
__device__ __forceinline__ double tanh_f64(double x) { return tanh(x); }
__device__ __forceinline__ double negative_infinity_f64() { return static_cast<double>(__int_as_float(0xff800000)); }

// NaN where one of the two is.
__device__ __forceinline__ float max_nan_f32(float a, float b) {
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
__device__ __forceinline__ float min_nan_f32(float a, float b) {
  float r;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}

__device__ __forceinline__ u32 f32_to_bits(float x) { return __float_as_uint(x); }
// By an instruction: where the compiler saw through it, accumulators of wgmma became integers, which it copied.
__device__ __forceinline__ float bits_to_f32(u32 x) {
  float r;
  asm("mov.b32 %0, %1;" : "=f"(r) : "r"(x));
  return r;
}
