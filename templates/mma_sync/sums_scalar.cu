// A gradient's sums of 16 rows and 8 columns, as the accumulators of a warp hold it: those of all lanes lie together, so that each of four adds
// touches 128 bytes in a row.
__device__ __forceinline__ void add_sums(float* sums, const float (&acc)[4]) {
#pragma unroll
  for (i32 i = 0; i < 4; ++i) red_global_add_f32(sums + 32 * i + lane_index(), acc[i]);
}
__device__ __forceinline__ Vec4F32 load_sums(const float* sums) {
  const float* lanes = sums + lane_index();
  return {ld_global_f32(lanes), ld_global_f32(lanes + 32), ld_global_f32(lanes + 64), ld_global_f32(lanes + 96)};
}
