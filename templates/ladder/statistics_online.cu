// One pass over the row: when the maximum grows from m to m', the sum so far is brought to it by the factor exp(m - m'). Each lane does so for its
// keys; in the end all are brought to the largest maximum.
__device__ __forceinline__ RowStatistics row_statistics(const float* s, i32 keys, float scale_log2) {
  float largest = negative_infinity(), sum = 0;
#pragma unroll 4
  for (i32 key = lane_index(); key < keys; key += kWarpSize) {
    const float score = ld_weak_global_f32(s + key), grown = max_f32(largest, score);
    sum = fma_rn_f32(sum, exponential(largest, grown, scale_log2), exponential(score, grown, scale_log2));
    largest = grown;
  }
  const float of_row = warp_max(largest);
  // A lane without a key has the sum 0 and the maximum -inf: where no lane has a key, their difference would be no number.
  return {of_row, warp_sum(sum == 0 ? 0 : sum * exponential(largest, of_row, scale_log2))};
}
