// CTAs take tiles in the order of their numbers: all tiles of a head, then those of the next.
__device__ __forceinline__ i32 take_key_tile(const Arguments&, u32 /*shared*/) { return static_cast<i32>(block_index()); }

// The place of a number among the tiles of all heads. head: of the keys, in all batch entries.
struct TilePlace {
  i32 tile, head;
  __device__ __forceinline__ TilePlace(const Arguments& args, i32 number) : tile(number % args.key_tiles), head(number / args.key_tiles) {}
};
