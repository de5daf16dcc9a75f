// Two passes over the row: the largest score, then the sum of the exponentials relative to it.
__device__ __forceinline__ RowStatistics row_statistics(const float* s, i32 keys, float scale_log2) {
  float largest = negative_infinity();
#pragma unroll 4
  for (i32 key = lane_index(); key < keys; key += kWarpSize) largest = max_f32(largest, ld_weak_global_f32(s + key));
  largest = warp_max(largest);
  float sum = 0;
#pragma unroll 4
  for (i32 key = lane_index(); key < keys; key += kWarpSize) sum += exponential(ld_weak_global_f32(s + key), largest, scale_log2);
  return {largest, warp_sum(sum)};
}
