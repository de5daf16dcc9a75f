// Consecutive CTAs take the tiles of one head: its K and V stay in L2.
__device__ __forceinline__ TileIndex tile_index(const Arguments& args, u32 cta) {
  const u32 tiles = args.query_tiles;
  return {static_cast<i32>(cta % tiles), static_cast<i32>(cta / tiles)};
}
