// The place of a number among the tiles of all heads: all tiles of a head, then those of the next. head: with tiles of its own, in all batch
// entries.
struct TilePlace {
  i32 tile, head;
  __device__ __forceinline__ TilePlace(const Arguments& args, i32 number) : tile(number % args.key_tiles), head(number / args.key_tiles) {}
};
