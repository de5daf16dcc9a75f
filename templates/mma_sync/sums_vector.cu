// A gradient's sums of 16 rows and 8 columns, as the accumulators of a warp hold it: the four of a lane lie together, for one add of 16 bytes.
__device__ __forceinline__ void add_sums(float* sums, const float (&acc)[4]) {
  red_global_add_v4_f32(sums + 4 * lane_index(), Vec4F32{acc[0], acc[1], acc[2], acc[3]});
}
__device__ __forceinline__ Vec4F32 load_sums(const float* sums) { return ld_global_v4_f32(sums + 4 * lane_index()); }
