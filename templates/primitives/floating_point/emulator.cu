// Rounded one by one: the compiler contracts none of these with another.
inline double add_rn_f64(double a, double b) { return a + b; }
inline double mul_rn_f64(double a, double b) { return a * b; }
inline double div_rn_f64(double a, double b) { return a / b; }
inline double sqrt_rn_f64(double x) { return __builtin_sqrt(x); }

inline u64 bits_of_f64(double x) { return __builtin_bit_cast(u64, x); }
inline double f64_of_bits(u64 x) { return __builtin_bit_cast(double, x); }

// .ftz: subnormal numbers are zeros of the same sign.
inline float flush_subnormal(float x) { return bits_of_float(x) & 0x7f800000u ? x : float_of_bits(bits_of_float(x) & 0x80000000u); }

inline float fma_rn_f32(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float fma_rn_sat_f32(float a, float b, float c) {
  const float r = __builtin_fmaf(a, b, c);
  return r > 0 ? (r < 1 ? r : 1.0f) : 0.0f;
}

// The number where the other is NaN; +0 of two zeros.
inline float max_f32(float a, float b) {
  if (a == b) return float_of_bits(bits_of_float(a) & bits_of_float(b));
  return a > b || b != b ? a : b;
}
inline float abs_f32(float x) { return float_of_bits(bits_of_float(x) & 0x7fffffffu); }

inline float ex2_approx_ftz_f32(float x) { return flush_subnormal(__builtin_exp2f(flush_subnormal(x))); }
inline float lg2_approx_ftz_f32(float x) { return flush_subnormal(__builtin_log2f(flush_subnormal(x))); }
inline float rcp_approx_ftz_f32(float x) { return flush_subnormal(1.0f / flush_subnormal(x)); }

inline float tanh_approx_f32(float x) { return __builtin_tanhf(x); }

inline double fma_rn_f64(double a, double b, double c) { return __builtin_fma(a, b, c); }
inline double max_f64(double a, double b) { return __builtin_fmax(a, b); }
inline double exp_f64(double x) { return __builtin_exp(x); }
inline double log_f64(double x) { return __builtin_log(x); }
inline double tanh_f64(double x) { return __builtin_tanh(x); }
inline double negative_infinity_f64() { return -__builtin_inf(); }

// NaN where one of the two is.
inline float max_nan_f32(float a, float b) { return a != a || b != b ? a + b : max_f32(a, b); }
inline float min_nan_f32(float a, float b) { return a != a || b != b ? a + b : -max_f32(-a, -b); }

// Arithmetic on a GPU has one NaN.
inline u32 f32_to_bits(float x) { return x == x ? bits_of_float(x) : 0x7fffffffu; }
inline float bits_to_f32(u32 x) { return float_of_bits(x); }
