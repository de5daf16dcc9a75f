inline float ld_global_f32(const float* from) { return load_global<float>("ld_global_f32", from); }
