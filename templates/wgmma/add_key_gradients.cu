//% if visible_blocks
// Passes over the blocks from this one on that begin before `end`; the one behind them.
__device__ __forceinline__ i32 skip_blocks(KeyGradients& keys, const QueryWalk& walk, i32 block, i32 end) {
#pragma unroll 1
  while (block < end && block < walk.blocks.end) {
    const i32 next = walk.after(block);
//% if dq_by_softmax
    keys.dq.distance = next - block;
//% end
    skip_block(${skipping});
    block = next;
  }
  return block;
}

//% end
// What a softmax warpgroup does with a tile: dK and dV of its keys, from all blocks of queries.
__device__ __forceinline__ void add_key_gradients(const Arguments& args, const Barriers& barriers, i32 index, SoftmaxWarpgroup& warpgroup${and_tiles}) {
  const KeyTile tile(args, index);
  const QueryWalk walk(args, tile);
  const i32 first_of_warp = warpgroup.first_key + static_cast<i32>(warp_index() % kWarpgroupWarps * 16);
  KeyGradients keys(args, tile, warpgroup);
  if (walk.any()) {
    const LiveBlocks live(args, tile, walk, tile.first_key + warpgroup.first_key);
//% if alibi
    keys.diagonal_key = live.diagonal_key;
//% end
//% if !persistent
    keys.warpgroup.begin_order();
//% end
    keys.warpgroup.wait_k();
//% if !persistent
    keys.warpgroup.wait_v();
//% end
    for (i32 head = 0; head < TileHeads::walked(args); ++head) {
//% if pair_tensors
      keys.head = TileHeads::of_queries(args, tile.head, head);
//% end
//% if alibi
      keys.slope = alibi_slope(args, tile.sequence, TileHeads::of_queries(args, tile.head, head));
//% end
//% if dropout
      keys.warpgroup.begin_dropout(args, tile, head);
//% end
//% if dq_by_softmax
      keys.dq.begin_head(args, tile.sequence, walk, workspace_batch(tile.sequence) * args.heads_q + TileHeads::of_queries(args, tile.head, head));
//% end
      i32 block = walk.blocks.begin;
//% if visible_blocks
      block = skip_blocks(keys, walk, block, live.begin);
//% else
#pragma unroll 1
      for (; block < live.begin; ++block) skip_block(${skipping});
//% end
      if (block < live.end) {
        query_step<true>(keys, block, live.masked(block));
//% if visible_blocks
#pragma unroll 1
        for (i32 next = walk.after(block); next < live.end; next = walk.after(block)) {
//% if dq_by_softmax
          keys.dq.distance = next - block;
//% end
          block = next;
          query_step<false>(keys, block, live.masked(block));
        }
//% else
#pragma unroll 1
        for (++block; block < live.end; ++block) query_step<false>(keys, block, live.masked(block));
//% end
//% if persistent
        if (head == TileHeads::walked(args) - 1) keys.warpgroup.leave_operands();
//% end
//% if visible_blocks
//% if masked_begin
        const i32 next = walk.after(block);
//% if dq_by_softmax
        keys.dq.distance = next - block;
//% end
        block = next;
//% end
//% end
        end_walk(keys);
      }
//% if masked_begin
//% if visible_blocks
      skip_blocks(keys, walk, block, walk.blocks.end);
//% else
#pragma unroll 1
      for (; block < walk.blocks.end; ++block) skip_block(${skipping});
//% end
//% end
    }
//% if !persistent
    keys.warpgroup.end_order();
//% end
//% if dq_by_softmax
    keys.dq.end_adds();
//% end
//% if persistent
    if (live.begin >= live.end) {
      keys.warpgroup.wait_v();
      keys.warpgroup.leave_operands();
    }
//% if loads_ahead
    keys.warpgroup.load_next_v(args, tiles);
//% end
//% if dq_by_softmax
    keys.warpgroup.leave_k();
//% end
//% end
    warpgroup = keys.warpgroup;
//% if persistent
  } else {
    pass_tile_over(warpgroup);
//% if loads_ahead
    warpgroup.load_next_v(args, tiles);
//% end
//% end
  }
  const KeyTile stored(args, opaque_i32(index));
  await_key_sums(args, stored);
  store_dv(args, stored, first_of_warp, keys.dv);
  store_dk(args, stored, first_of_warp, keys.dk);
  pass_key_sums(args, stored);
}
