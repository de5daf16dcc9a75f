// The place of a number among the tiles of all heads: heads in sections whose queries, dO and sums of dQ stay in L2 together; of a section the
// first tile of every head, which under a causal mask is the longest, then the next. head: with tiles of its own, in all batch entries.
struct TilePlace {
  i32 tile, head;
  __device__ __forceinline__ TilePlace(const Arguments& args, i32 number) {
    const i32 heads = args.batch * TileHeads::count(args), section_tiles = args.section_heads * args.key_tiles;
    const i32 section = number / section_tiles, first = section * args.section_heads, place = number - section * section_tiles;
    const i32 here = heads - first < args.section_heads ? heads - first : args.section_heads;
    tile = place / here;
    head = first + place - tile * here;
  }
};
