// Delta of query r of a block of kRows, behind its LSE.
__device__ __forceinline__ float delta_of(const float* statistics_of_block, i32 r) { return ld_weak_global_f32(statistics_of_block + 2 * r + 1); }
