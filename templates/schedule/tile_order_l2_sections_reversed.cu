// Heads form sections whose K and V stay in L2 together. Consecutive CTAs take the same tile of every head of a section, the last tile first.
__device__ __forceinline__ TileIndex tile_index(const Arguments& args, u32 cta) {
  const u32 heads = ${tile_heads}, section_heads = args.section_heads;
  const u32 section_tiles = section_heads * args.query_tiles, section = cta / section_tiles;
  const u32 first = section * section_heads, place = cta - section * section_tiles;
  const u32 here = heads - first < section_heads ? heads - first : section_heads;
  const u32 row = place / here;
  return {static_cast<i32>(args.query_tiles - 1 - row), static_cast<i32>(first + place - row * here)};
}
