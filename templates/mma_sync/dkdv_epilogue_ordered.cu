//% include mma_sync/key_sums

// ${key_sum_adders} add to the sums of dK and dV in a fixed order, the first ${key_sum_adder} first. In each order of tiles, a ${key_sum_adder}'s tile has a greater
// number than the same tile of the ${key_sum_adder}s before it. It waits for nothing else here; all tickets of dQ have been handed on by now.
__device__ __forceinline__ void finish_key_gradients(const Arguments& args, const KeyTile& tile, const WarpPart& part, const KeyGradients& acc) {
  u32* ticket = args.dkdv_tickets + key_head(args, tile) * args.key_tiles + (first_block_of_keys<kBlockKv>(tile.sequence) + tile.tile);  // ${key_sum_adder}s that have added
  const u32 mine = static_cast<u32>(${key_sums_before});
  if (thread_index() == 0) wait_acquire_gpu_global_u32(ticket, mine);
  bar_sync();
  add_key_sums(args, tile, part, acc);
  bar_sync();
  if (thread_index() == 0) st_release_gpu_global_u32(ticket, mine + 1);
}
