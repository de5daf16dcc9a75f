// Where warpgroup 0 stands in the rings, from tile to tile.
struct DqWarpgroup {
  i32 warp;
  QueryLoads queries;
  PipelineSlot<kDsStages> ds;
  PipelineSlot<1> kv;  // K and V of the tile

  __device__ __forceinline__ explicit DqWarpgroup(i32 warp) : warp(warp), queries(warp == 2) {}
};

//% if polled_loads
// What warpgroup 0 does with a tile: dQ += dS K for each block of queries, and all loads. A buffer is filled anew when every softmax warpgroup has left
// it: while a product runs, and while dS is waited for, one lane of a loading warp looks again and again.
//% else
// What warpgroup 0 does with a tile: dQ += dS K for each block of queries, and all loads. A buffer is filled anew while a product of the block
// after the next runs, when every softmax warpgroup has left it; a single one as soon as they have.
//% end
__device__ __forceinline__ void add_query_gradients(const Arguments& args, const Barriers& barriers, u32 shared, i32 index, DqWarpgroup& warpgroup) {
  const KeyTile tile(args, index);
  const QueryWalk walk(args, tile);
  if (!walk.any()) {
    griddepcontrol_wait();  // a launch ends no earlier than the one before it
    return;
  }
  const DqScores scores(tile);
  const i32 warp = warpgroup.warp;
  const bool loads = warp == 1 || warp == 2;
  QueryLoads& queries = warpgroup.queries;
  PipelineSlot<kDsStages>& ds = warpgroup.ds;
//% if !polled_loads
  const bool single = queries.stages() == 1;
//% end
  if (loads) {
    const i32 head_kv = TileHeads::of_keys(args, tile.head);
    if (lane_index() == 0) {
//% if persistent
      mbarrier_wait_parity(queries.of_do ? barriers.v_empty() : barriers.k_empty(), warpgroup.kv.parity ^ 1);
//% end
      if (queries.of_do)
        load_tile<kKvPanelStride>(shared + kVOffset, args.v_map, barriers.v_full(), head_kv, place_of_keys(tile.sequence, tile.tile));
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
  DqTickets tickets(args, tile);
//% if !polled_loads
  bool first = true;
//% end
  mbarrier_wait_parity(barriers.k_full(), warpgroup.kv.parity);
#pragma unroll 1
  for (i32 walked = 0; walked < TileHeads::walked(args); ++walked) {
    const i32 head = tile.sequence.batch * args.heads_q + TileHeads::of_queries(args, tile.head, walked);
    float* sums = args.d_q_sums + sums_place(head, padded_rows<kBlockQ>(query_count(args, tile.sequence)), walk.blocks.begin * kBlockQ + 16 * warp, 0);
#pragma unroll 1
    for (i32 block = walk.blocks.begin; block < walk.blocks.end; ++block) {
      scores.expect(barriers, ds);
//% if polled_loads
      if (loads) {
        if (lane_index() == 0) {
          while (!mbarrier_test_wait_parity(barriers.ds_full(ds.stage), ds.parity)) queries.poll(args, barriers, tile, walk, shared);
        }
        bar_warp_sync();
      }
//% end
      mbarrier_wait_parity(barriers.ds_full(ds.stage), ds.parity);
      // Not unrolled, so that one product's accumulators are the next one's.
#pragma unroll 1
      for (i32 i = 0; i < kBlockQ / 64 * DqScores::kProducts; ++i) {
        const i32 row_tile = i / DqScores::kProducts, part = scores.part(i - row_tile * DqScores::kProducts);
        DqFragments dq;
        scores.issue(dq, barriers, ds, 64 * row_tile, part, shared);
//% if polled_loads
        if (loads && lane_index() == 0) queries.poll(args, barriers, tile, walk, shared);
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
        wgmma_wait_group<0>();
        wgmma_landed(dq);
        if (i == kBlockQ / 64 * DqScores::kProducts - 1) {
          bar_warp_sync();
          scores.release(barriers, ds);
        }
        // Four warps have 16 queries each.
        add_dq(dq, sums + (row_tile * (64 / 16) * kChunks + part * (kDqColumns / 8)) * kSumsOfFragment, part == kDqProducts - 1, shared);
      }
      sums += kBlockQ / 16 * kChunks * kSumsOfFragment;
      tickets.pass();
//% if !polled_loads
      if (loads && single) queries.next(args, barriers, tile, walk, shared);
//% end
      bar_warp_sync();
      ds.advance();
    }
  }
  end_dq_adds();
//% if persistent
  if (lane_index() == 0) mbarrier_arrive(barriers.k_empty());
//% end
  warpgroup.kv.advance();
}
