// CTAs take all tiles of a head, then those of the next.
//% if packed_sequences
__device__ __forceinline__ i32 tile_in_order(const Arguments& args, i32 number) {
  const i32 listed = listed_tiles(args);
  if (number >= ${tile_heads}${tile_parts} * listed) return -1;
  const i32 head = number / listed;
  return head * args.key_tiles + number - head * listed;
}
//% else
__device__ __forceinline__ i32 tile_in_order(const Arguments&, i32 number) { return number; }
//% end
