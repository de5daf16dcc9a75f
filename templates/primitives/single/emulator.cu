inline i32 anew_i32(i32 x) { return x; }

struct alignas(16) Vec4F32 { float x, y, z, w; };

inline float ld_global_f32(const float* from) { return load_global<float>("ld_global_f32", from); }
inline Vec4F32 ld_global_v4_f32(const float* from) { return load_global<Vec4F32>("ld_global_v4_f32", from); }
inline Vec4F32 ld_shared_v4_f32(u32 from) { return load_shared<Vec4F32>("ld_shared_v4_f32", from); }
