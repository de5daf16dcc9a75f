// CTAs take all tiles of a head, then those of the next. The last tile of a head comes first: under a causal mask it sees the fewest queries, and
// adds to each block before the tiles that meet the block later.
__device__ __forceinline__ i32 tile_in_order(const Arguments& args, i32 number) {
//% if packed_sequences
  const i32 listed = listed_tiles(args);
  if (number >= ${tile_heads}${tile_parts} * listed) return -1;
  const i32 head = number / listed;
  return head * args.key_tiles + listed - 1 - (number - head * listed);
//% else
  const i32 first = number / args.key_tiles * args.key_tiles;  // of the head
  return first + args.key_tiles - 1 - (number - first);
//% end
}
