// Consecutive CTAs take the tiles of one head from the last to the first: under a causal mask the longest first.
__device__ __forceinline__ TileIndex tile_index(const Arguments& args, u32 cta) {
  const u32 tiles = args.query_tiles;
  return {static_cast<i32>(tiles - 1 - cta % tiles), static_cast<i32>(cta / tiles)};
}
