struct alignas(8) Vec2F32 { float x, y; };

// Memory that the kernel itself writes: no .nc, whose cache may hold what was there before.
inline float ld_weak_global_f32(const float* from) { return load_global<float>("ld_weak_global_f32", from); }
inline Vec2F32 ld_weak_global_v2_f32(const float* from) { return load_global<Vec2F32>("ld_weak_global_v2_f32", from); }
inline void st_global_v2_f32(float* to, Vec2F32 x) { store_global("st_global_v2_f32", to, x); }
