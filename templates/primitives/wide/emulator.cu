inline Vec4 ld_global_v4_b32(const void* from) { return load_global<Vec4>("ld_global_v4_b32", from); }
inline double ld_global_f64(const void* from) { return load_global<double>("ld_global_f64", from); }
inline void st_global_b64(void* to, u64 x) { store_global("st_global_b64", to, x); }
inline void st_shared_b64(u32 to, u64 x) { store_shared("st_shared_b64", to, x); }
inline u64 ld_shared_b64(u32 from) { return load_shared<u64>("ld_shared_b64", from); }

// Rounded one by one: the compiler contracts none of these with another.
inline double add_rn_f64(double a, double b) { return a + b; }
inline double mul_rn_f64(double a, double b) { return a * b; }
inline double div_rn_f64(double a, double b) { return a / b; }
inline double sqrt_rn_f64(double x) { return __builtin_sqrt(x); }
inline u64 bits_of_f64(double x) { return __builtin_bit_cast(u64, x); }
inline double f64_of_bits(u64 x) { return __builtin_bit_cast(double, x); }
