// The warp's queries as A fragments that stay in registers.
struct QueryFragments {
  u32 steps[kRowTiles][kDimSteps > 0 ? kDimSteps : 1][4];
  u32 tail[kRowTiles][2];

  // first_row is the warp's first row in the tile.
  __device__ __forceinline__ QueryFragments(u32 tile, u32 first_row) {
    const TileCursor queries(tile, first_row + lane_index() % 16, lane_index() / 16);
#pragma unroll
    for (i32 t = 0; t < kRowTiles; ++t) {
#pragma unroll
      for (i32 k = 0; k < kDimSteps; ++k) load_query_step(steps[t][k], queries, 16 * t, k);
      if (kDimTail) load_query_tail(tail[t], tile, first_row + 16 * t);
    }
  }
  __device__ __forceinline__ void step(u32 (&a)[4], i32 t, i32 k) const {
#pragma unroll
    for (i32 i = 0; i < 4; ++i) a[i] = steps[t][k][i];
  }
  __device__ __forceinline__ void last(u32 (&a)[2], i32 t) const {
    a[0] = tail[t][0];
    a[1] = tail[t][1];
  }
};
