// exp2(score * scale + offset) of the thread's element i. The special function unit takes 16 of an SM in a clock, and the FMA pipes
// have time: of every 16 elements they compute kEmulatedExponentials. x = n + f with integer n, 2^x = p(f) with n added to its exponent.
// Outside of [-127, 128] the result is exactly 0 or infinity, since p(0) is 1. A NaN becomes FLT_MAX: checked_sum() tells.
__device__ __forceinline__ float exponential(i32 i, float score, float scale, float offset) {
  constexpr i32 kEmulatedExponentials = ${emulated_exponentials};
  float x = fma_rn_f32(score, scale, offset);
  if (i * kEmulatedExponentials % 16 >= kEmulatedExponentials) return ex2_approx_ftz_f32(x);
  x = max_nan_f32(x, -127);
  constexpr float kRound = 0x1.8p23f;  // added to a small number it leaves its integer in the low bits
  const float n = x + kRound;
  const float f = x - (n - kRound);
  // The polynomial of least relative error with p(0) = 1: 2.8e-6 for |f| <= 1/2. One degree less would do for P in 16 bits,
  // but its 1e-4 shows in LSE.
  constexpr float kC1 = 0.693124175f, kC2 = 0.240240991f, kC3 = 0.0559064373f, kC4 = 0.00958285574f;
  const float p = fma_rn_f32(f, fma_rn_f32(f, fma_rn_f32(f, fma_rn_f32(f, kC4, kC3), kC2), kC1), 1);
  return bits_to_f32(f32_to_bits(p) + (f32_to_bits(n) << 23));
}
// A sum of exponentials of scores that are at most little above row_max: NaN where a NaN was among them.
__device__ __forceinline__ float checked_sum(float sum) { return sum < 0x1p120f ? sum : bits_to_f32(0x7fffffff); }
