// .ftz: subnormal numbers are zeros of the same sign.
inline float flush_subnormal(float x) { return bits_of_float(x) & 0x7f800000u ? x : float_of_bits(bits_of_float(x) & 0x80000000u); }

inline float fma_rn_f32(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
// The number where the other is NaN; +0 of two zeros.
inline float max_f32(float a, float b) {
  if (a == b) return float_of_bits(bits_of_float(a) & bits_of_float(b));
  return a > b || b != b ? a : b;
}
inline float ex2_approx_ftz_f32(float x) { return flush_subnormal(__builtin_exp2f(flush_subnormal(x))); }
inline float lg2_approx_ftz_f32(float x) { return flush_subnormal(__builtin_log2f(flush_subnormal(x))); }
inline float rcp_approx_ftz_f32(float x) { return flush_subnormal(1.0f / flush_subnormal(x)); }

// Round to nearest even; NaN becomes the one NaN that the hardware writes.
inline u32 round_to_bf16(float x) {
  const u32 bits = bits_of_float(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
}
inline u32 round_to_f16(float x) {
  const u32 sign = bits_of_float(x) >> 16 & 0x8000u;
  const u32 magnitude = bits_of_float(x) & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7fff;
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // 65520 and more round to infinity
  // Below 2^-14 the result is subnormal: the last bit of a sum with 0.5 is 2^-24, so the addition rounds.
  if (magnitude < 0x38800000u) return sign | (bits_of_float(float_of_bits(magnitude) + 0.5f) - bits_of_float(0.5f));
  return sign | (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1)) >> 13;
}
// Two floats rounded to 16 bits: `high` to the upper half (PTX's operand order).
inline u32 cvt_rn_bf16x2_f32(float high, float low) { return round_to_bf16(high) << 16 | round_to_bf16(low); }
inline u32 cvt_rn_f16x2_f32(float high, float low) { return round_to_f16(high) << 16 | round_to_f16(low); }

inline double cvt_f64_bf16(u16 x) { return float_of_bits(static_cast<u32>(x) << 16); }
inline double cvt_f64_f16(u16 x) {
  const u32 sign = (x & 0x8000u) << 16;
  const u32 magnitude = x & 0x7fffu;
  const float value = magnitude >= 0x7c00u ? float_of_bits(0x7f800000u | magnitude << 13) : float_of_bits(magnitude << 13) * 0x1p112f;
  return float_of_bits(bits_of_float(value) | sign);
}
inline double fma_rn_f64(double a, double b, double c) { return __builtin_fma(a, b, c); }
inline double max_f64(double a, double b) { return __builtin_fmax(a, b); }
inline double exp_f64(double x) { return __builtin_exp(x); }
inline double log_f64(double x) { return __builtin_log(x); }
inline double negative_infinity_f64() { return -__builtin_inf(); }
