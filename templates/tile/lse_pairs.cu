// LSE·log2(e) of query r of a block of kRows, before its delta.
__device__ __forceinline__ float lse_log2_of(const float* statistics_of_block, i32 r) { return ld_weak_global_f32(statistics_of_block + 2 * r); }
