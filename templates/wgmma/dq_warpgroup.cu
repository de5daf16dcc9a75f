// Where warpgroup 0 stands in the rings, from tile to tile.
struct DqWarpgroup {
  i32 warp;
//% if persistent
  TileLoads loads;
  u32 worked = 0;  // blocks that were worked on
//% else
  QueryLoads queries;
  PipelineSlot<kDsStages> ds;
//% end
  TileSlot slot;

//% if persistent
  __device__ __forceinline__ explicit DqWarpgroup(i32 warp) : warp(warp), loads(warp == 2) {}
//% else
  __device__ __forceinline__ explicit DqWarpgroup(i32 warp) : warp(warp), queries(warp == 2) {}
//% end
};

//% if polled_loads
// What warpgroup 0 does with a tile: dQ += dS K for each block of queries, and all loads. A buffer is filled anew when every softmax warpgroup has left
// it: while a product runs, and while dS is waited for, one lane of a loading warp looks again and again.
//% else
// What warpgroup 0 does with a tile: dQ += dS K for each block of queries, and all loads. A buffer is filled anew while a product of the block
// after the next runs, when every softmax warpgroup has left it; a single one as soon as they have.
//% end
__device__ __forceinline__ void add_query_gradients(const Arguments& args, const Barriers& barriers, u32 shared, i32 index, DqWarpgroup& warpgroup${and_tiles}) {
  const KeyTile tile(args, index);
  const QueryWalk walk(args, tile);
  const i32 warp = warpgroup.warp;
  const bool loads = warp == 1 || warp == 2;
  const TileSlot slot = warpgroup.slot;
//% if persistent
  TileLoads& ahead = warpgroup.loads;
  if (loads) {
    ahead.begin_tile();
//% if !polled_loads
    ahead.fill(args, barriers, shared);
//% end
  }
  bar_warp_sync();
  if (!walk.any()) {
    mbarrier_wait_parity(barriers.k_full(), slot.parity());
    bar_warp_sync();
    if (lane_index() == 0) mbarrier_arrive(barriers.k_empty());
    if (loads) {
      if (warp == 1) ahead.pass_number(args, tiles, slot);
      ahead.go_ahead(args, tiles, slot);
      if (warp == 1) ahead.load_next_k(args, barriers, tiles, slot, shared);
    }
    bar_warp_sync();
    return;
  }
//% else
  if (!walk.any()) {
    griddepcontrol_wait();  // a launch ends no earlier than the one before it
    return;
  }
  QueryLoads& queries = warpgroup.queries;
//% end
  const DqScores scores(tile);
//% if persistent
  u32& worked = warpgroup.worked;
//% else
  PipelineSlot<kDsStages>& ds = warpgroup.ds;
//% end
//% if !persistent
//% if !polled_loads
  const bool single = queries.stages() == 1;
//% end
  if (loads) {
    const i32 head_kv = TileHeads::of_keys(args, tile.head);
    if (lane_index() == 0) {
      if (queries.of_do)
        load_tile<kKvPanelStride>(shared + kVOffset, args.v_map, barriers.v_full(), head_kv, place_of_keys(args, tile.sequence, tile.tile));
      else
        scores.load_keys(args, barriers, tile, head_kv, shared);
    }
    griddepcontrol_wait();  // the statistics are another kernel's
    queries.begin(walk);
//% if !polled_loads
#pragma unroll 1
    for (i32 i = 0; i < queries.stages(); ++i) queries.next(args, barriers, tile, walk, shared);
//% end
  }
  bar_warp_sync();
//% end
  DqTickets tickets(args, tile);
//% if !persistent
//% if !polled_loads
  bool first = true;
//% end
//% end
//% if polled_loads
  if (loads) {
    if (lane_index() == 0) {
      while (!mbarrier_test_wait_parity(barriers.k_full(), slot.parity())) ${poll};
    }
    bar_warp_sync();
  }
//% end
  mbarrier_wait_parity(barriers.k_full(), slot.parity());
//% if persistent
  i32 left = TileHeads::walked(args) * (walk.blocks.end - walk.blocks.begin) - 1;  // blocks behind this one
  bool first = true;
//% end
#pragma unroll 1
  for (i32 walked = 0; walked < TileHeads::walked(args); ++walked) {
    const i32 head = workspace_batch(tile.sequence) * args.heads_q + TileHeads::of_queries(args, tile.head, walked);
    float* sums = args.d_q_sums + sums_place(head, blocks_of_queries<kBlockQ>(args) * kBlockQ, (first_block_of_queries<kBlockQ>(tile.sequence) + walk.blocks.begin) * kBlockQ + 16 * warp, 0);
#pragma unroll 1
//% if visible_blocks
    for (i32 block = walk.blocks.begin, next; block < walk.blocks.end; block = next) {
      next = walk.after(block);
//% else
    for (i32 block = walk.blocks.begin; block < walk.blocks.end; ++block) {
//% end
//% if persistent
      const PipelineSlot<kDsStages> ds = slot_of<kDsStages>(worked);
//% end
      scores.expect(barriers, ds);
//% if polled_loads
      if (loads) {
        if (lane_index() == 0) {
          while (!mbarrier_test_wait_parity(barriers.ds_full(ds.stage), ds.parity)) ${poll};
        }
        bar_warp_sync();
      }
//% end
      mbarrier_wait_parity(barriers.ds_full(ds.stage), ds.parity);
//% if fused_dbias
      store_bias_gradient(args, tile, TileHeads::of_queries(args, tile.head, walked), block * kBlockQ, shared + kDsOffset + ds.stage * kDsTileBytes, warp);
      bar_warp_sync();
//% end
      // Not unrolled, so that one product's accumulators are the next one's.
#pragma unroll 1
      for (i32 i = 0; i < kBlockQ / 64 * DqScores::kProducts; ++i) {
        const i32 row_tile = i / DqScores::kProducts, part = scores.part(i - row_tile * DqScores::kProducts);
        DqFragments dq;
        scores.issue(dq, barriers, ds, 64 * row_tile, part, shared);
//% if persistent
//% if polled_loads
        if (loads && lane_index() == 0) ${poll};
        bar_warp_sync();
//% end
        if (i == 0) {
          if (loads) {
            if (left <= kMostStages + 1) {
              // Once a tile, before its blocks end.
              if (warp == 1 && (left == kMostStages + 1 || first)) ahead.pass_number(args, tiles, slot);
//% if polled_loads
              if (left == 0) ahead.go_ahead(args, tiles, slot);
//% end
            }
//% if !polled_loads
            ahead.fill_ahead(args, barriers, tiles, slot, shared);
//% end
          }
          bar_warp_sync();
          tickets.await(walk, head, block);
        }
//% else
//% if polled_loads
        if (loads && lane_index() == 0) ${poll};
        bar_warp_sync();
        if (i == 0) tickets.await(walk, head, block);
//% else
        if (i == 0) {
          if (loads && !single && !first) queries.next(args, barriers, tile, walk, shared);
          first = false;
          bar_warp_sync();
          tickets.await(walk, head, block);
        }
//% end
//% end
        wgmma_wait_group<0>();
        wgmma_landed(dq);
        if (i == kBlockQ / 64 * DqScores::kProducts - 1) {
          bar_warp_sync();
//% if fused_dbias
          await_stored_bias_gradient(warp);
//% end
          scores.release(barriers, ds);
//% if persistent
          if (left == 0) {
            if (lane_index() == 0) mbarrier_arrive(barriers.k_empty());
            if (warp == 1) ahead.load_next_k(args, barriers, tiles, slot, shared);
            bar_warp_sync();
          }
//% end
        }
        // Four warps have 16 queries each.
        add_dq(dq, sums + (row_tile * (64 / 16) * kChunks + part * (kDqColumns / 8)) * kSumsOfFragment, part == kDqProducts - 1, shared);
      }
//% if visible_blocks
      sums += kBlockQ / 16 * kChunks * kSumsOfFragment * (next - block);
//% else
      sums += kBlockQ / 16 * kChunks * kSumsOfFragment;
//% end
      tickets.pass(walk, block);
//% if persistent
      ++worked;
      --left;
      first = false;
//% if !polled_loads
      --ahead.filled;
//% end
//% end
//% if !polled_loads
//% if persistent
      if ((kStages == 1 || kDoStages == 1) && loads) ahead.fill_ahead(args, barriers, tiles, slot, shared);
//% else
      if (loads && single) queries.next(args, barriers, tile, walk, shared);
//% end
//% end
      bar_warp_sync();
//% if !persistent
      ds.advance();
//% end
    }
  }
  end_dq_adds();
}
