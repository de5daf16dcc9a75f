//% include wgmma/key_sums

// ${key_sum_adders} add to the sums of dK and dV in a fixed order, the first ${key_sum_adder} first. In each order of tiles, a ${key_sum_adder}'s tile has a greater
// number than the same tile of the ${key_sum_adder}s before it. It waits for nothing else here. Warpgroup 0 takes no part.
constexpr u32 kKeySums = kOrder + kSoftmaxWarpgroups;
__device__ __forceinline__ u32* key_sums_ticket(const Arguments& args, const KeyTile& tile) { return args.dkdv_tickets + key_head(args, tile) * args.key_tiles + (first_block_of_keys<kBlockKv>(tile.sequence) + tile.tile); }
__device__ __forceinline__ u32 ${key_sum_adder}s_before(const Arguments& args, const KeyTile& tile) { return static_cast<u32>(${key_sums_before}); }

__device__ __forceinline__ void await_key_sums(const Arguments& args, const KeyTile& tile) {
  if (thread_index() == kWarpgroup) wait_acquire_gpu_global_u32(key_sums_ticket(args, tile), ${key_sum_adder}s_before(args, tile));
  bar_sync_named(kKeySums, kSoftmaxWarpgroups * kWarpgroup);
}
__device__ __forceinline__ void pass_key_sums(const Arguments& args, const KeyTile& tile) {
  bar_sync_named(kKeySums, kSoftmaxWarpgroups * kWarpgroup);
  if (thread_index() == kWarpgroup) st_release_gpu_global_u32(key_sums_ticket(args, tile), ${key_sum_adder}s_before(args, tile) + 1);
}
