// The place of a number among the tiles of all heads: all tiles of a head, then those of the next. head: with tiles of its own, in all batch
// entries. Of a head the last tile comes first: under a causal mask it sees the fewest queries, and adds to each block before the tiles that
// meet the block later.
struct TilePlace {
  i32 tile, head;
  __device__ __forceinline__ TilePlace(const Arguments& args, i32 number)
      : tile(args.key_tiles - 1 - number % args.key_tiles), head(number / args.key_tiles) {}
};
