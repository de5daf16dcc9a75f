// Delta of query r of a block of kRows: deltas are behind all LSE, those of sixteen queries as lanes of fragments hold columns.
__device__ __forceinline__ float delta_of(const float* statistics_of_block, i32 r) {
  return ld_weak_global_f32(statistics_of_block + kRows + r / 16 * 16 + r % 8 / 2 * 4 + r % 16 / 8 * 2 + r % 2);
}
