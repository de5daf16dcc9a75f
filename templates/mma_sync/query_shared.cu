// The warp's queries, read from shared memory as A fragments at each step.
struct QueryFragments {
  u32 tile, first_row;
  TileCursor queries;

  // first_row is the warp's first row in the tile.
  __device__ __forceinline__ QueryFragments(u32 tile, u32 first_row)
      : tile(tile), first_row(first_row), queries(tile, first_row + lane_index() % 16, lane_index() / 16) {}
  __device__ __forceinline__ void step(u32 (&a)[4], i32 t, i32 k) const { load_query_step(a, queries, 16 * t, k); }
  __device__ __forceinline__ void last(u32 (&a)[2], i32 t) const { load_query_tail(a, tile, first_row + 16 * t); }
};
