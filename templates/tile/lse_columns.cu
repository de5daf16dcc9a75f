// LSE·log2(e) of query r of a block of kRows, whose place is that of its delta before all deltas.
__device__ __forceinline__ float lse_log2_of(const float* statistics_of_block, i32 r) {
  return ld_weak_global_f32(statistics_of_block + r / 16 * 16 + r % 8 / 2 * 4 + r % 16 / 8 * 2 + r % 2);
}
