// Consecutive CTAs take the same tile of every head.
__device__ __forceinline__ TileIndex tile_index(const Arguments& args, u32 cta) {
  const u32 heads = ${tile_heads};
  return {static_cast<i32>(cta / heads), static_cast<i32>(cta % heads)};
}
