// A fragment of 16 queries and 16 (or, as the last step of an odd number of chunks, 8) elements of the head dimension.
__device__ __forceinline__ void load_query_step(u32 (&a)[4], u32 tile, u32 row, u32 k) {
  const u32 lane = lane_index();
  ldmatrix_x4(a, tile + tile_offset(row + lane % 16, 2 * k + lane / 16));
}
__device__ __forceinline__ void load_query_tail(u32 (&a)[2], u32 tile, u32 row) {
  ldmatrix_x2(a, tile + tile_offset(row + lane_index() % 16, kChunks - 1));
}
