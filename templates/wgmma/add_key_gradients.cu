// What a softmax warpgroup does with its tile: dK and dV of its keys, from all blocks of queries.
__device__ __forceinline__ void add_key_gradients(const Arguments& args, const Barriers& barriers, u32 shared, i32 index, i32 warpgroup) {
  const KeyTile tile(args, index);
  const QueryWalk walk(args, tile);
  const i32 first_key = warpgroup * kWarpgroupKeys, first_of_warp = first_key + static_cast<i32>(warp_index() % kWarpgroupWarps * 16);
  KeyGradients keys(args, tile, SoftmaxWarpgroup{barriers, shared, warpgroup, first_key});
  if (walk.any()) {
    const LiveBlocks live(args, tile, walk, tile.first_key + first_key);
    if (warpgroup == kSoftmaxWarpgroups - 1) keys.warpgroup.pass_order();
    mbarrier_wait_parity(barriers.k_full(), 0);
    mbarrier_wait_parity(barriers.v_full(), 0);
    for (i32 head = 0; head < TileHeads::walked(args); ++head) {
      i32 block = walk.blocks.begin;
#pragma unroll 1
      for (; block < live.begin; ++block) skip_block(keys.warpgroup, true);
      if (block < live.end) {
        query_step<true>(keys, block, live.masked(block));
#pragma unroll 1
        for (++block; block < live.end; ++block) query_step<false>(keys, block, live.masked(block));
        keys.end();
      }
//% if masked_begin
#pragma unroll 1
      for (; block < walk.blocks.end; ++block) skip_block(keys.warpgroup, true);
//% end
    }
    if (warpgroup == 0) keys.warpgroup.wait_order();
  }
  const KeyTile stored(args, opaque_i32(index));
  await_key_sums(args, stored);
  store_dv(args, stored, first_of_warp, keys.dv);
  store_dk(args, stored, first_of_warp, keys.dk);
  pass_key_sums(args, stored);
}
