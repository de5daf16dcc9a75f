//% if last_tile_first
// Heads form sections whose queries, dO and sums of dQ stay in L2 together. Consecutive CTAs take the last tile of every head of a section, then the
// tile before it: under a causal mask it sees the fewest queries, and adds to each block before the tiles that meet the block later.
//% else
// Heads form sections whose queries, dO and sums of dQ stay in L2 together. Consecutive CTAs take the first tile of every head of a section, which
// under a causal mask is the longest, then the next tile.
//% end
__device__ __forceinline__ i32 tile_in_order(const Arguments& args, i32 number) {
//% if packed_sequences
  const i32 listed = listed_tiles(args), heads = ${tile_heads}${tile_parts}, section_tiles = args.section_heads * listed;
  if (number >= heads * listed) return -1;
//% else
//% if query_parts
  const i32 heads = ${tile_heads} * kQueryParts;  // each part counts as one
  const i32 section_tiles = args.section_heads * args.key_tiles;
//% else
  const i32 heads = ${tile_heads}, section_tiles = args.section_heads * args.key_tiles;
//% end
//% end
  const i32 section = number / section_tiles, first = section * args.section_heads, place = number - section * section_tiles;
  const i32 here = heads - first < args.section_heads ? heads - first : args.section_heads;
  const i32 tile = place / here;
//% if last_tile_first
  return (first + place - tile * here) * args.key_tiles + ${listed_tiles} - 1 - tile;
//% else
  return (first + place - tile * here) * args.key_tiles + tile;
//% end
}
