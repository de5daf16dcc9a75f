// kDqColumns columns of dS K, from a multiple of a panel on, for 64 queries of a block: in the accumulators of the warpgroup.
struct DqProduct {
  float acc[kDqColumns / 2];

  // keys: the panel of K that the columns begin with
  __device__ __forceinline__ void issue(u32 ds, u32 keys) {
    const u32 scores = tile_place(ds, kQPanelStride), columns = tile_place(keys, kKvPanelStride);
    wgmma_fence();
    wgmma_ss_first<true>(acc, matrix_descriptor(scores), matrix_descriptor(columns));
#pragma unroll
    for (i32 step = 1; step < kKeySteps; ++step)
      wgmma_ss<true, true>(acc, matrix_descriptor(scores + column_step(step, kQPanelStride)), matrix_descriptor(columns + row_step(step)));
    wgmma_commit_group();
  }
  __device__ __forceinline__ void wait() {
    wgmma_wait_group<0>();
    wgmma_landed(acc);
  }
  // sums: of the warp's 16 queries and the first of these columns
  __device__ __forceinline__ void add(float* sums, bool last) const {
#pragma unroll
    for (i32 n = 0; n < kDqColumns / 8; ++n) {
      const float fragment[4] = {acc[4 * n], acc[4 * n + 1], acc[4 * n + 2], acc[4 * n + 3]};
      if (n < kDqLastColumns / 8 || !last) add_sums(sums + n * kSumsOfFragment, fragment);
    }
  }
};

// What warpgroup 0 does with its tile: dQ += dS K for each block of queries, and all loads. A buffer is filled anew while a product of the block
// after the next runs, when every softmax warpgroup has left it; a single one as soon as they have.
__device__ __forceinline__ void add_query_gradients(const Arguments& args, const Barriers& barriers, u32 shared, i32 index, i32 warp) {
  const KeyTile tile(args, index);
  const QueryWalk walk(args, tile);
  if (!walk.any()) return;
  const bool loads = warp == 1 || warp == 2;
  QueryLoads queries(walk, warp == 2);
  const bool single = queries.stages() == 1;
  if (loads) {
    if (lane_index() == 0)
      load_tile<kKvPanelStride>(shared + (queries.of_do ? kVOffset : kKOffset), queries.of_do ? args.v_map : args.k_map,
                                queries.of_do ? barriers.v_full() : barriers.k_full(), TileHeads::of_keys(args, tile.head), place_of_keys(tile.sequence, tile.tile));
#pragma unroll 1
    for (i32 i = 0; i < queries.stages(); ++i) queries.next(args, barriers, tile, walk, shared);
  }
  bar_warp_sync();
  DqTickets tickets(args, tile);
  PipelineSlot<kDsStages> ds;
  bool first = true;
  mbarrier_wait_parity(barriers.k_full(), 0);
#pragma unroll 1
  for (i32 walked = 0; walked < TileHeads::walked(args); ++walked) {
    const i32 head = tile.sequence.batch * args.heads_q + TileHeads::of_queries(args, tile.head, walked);
    float* sums = args.d_q_sums + sums_place(head, padded_rows<kBlockQ>(query_count(args, tile.sequence)), walk.blocks.begin * kBlockQ + 16 * warp, 0);
#pragma unroll 1
    for (i32 block = walk.blocks.begin; block < walk.blocks.end; ++block) {
      mbarrier_wait_parity(barriers.ds_full(ds.stage), ds.parity);
      // Not unrolled, so that one product's accumulators are the next one's.
#pragma unroll 1
      for (i32 i = 0; i < kBlockQ / 64 * kDqProducts; ++i) {
        const i32 rows = i / kDqProducts, part = i - rows * kDqProducts;
        const bool last = part == kDqProducts - 1;
        DqProduct product;
        product.issue(shared + kDsOffset + ds.stage * kDsTileBytes + rows * 64 * kPanelBytes, shared + kKOffset + part * (kDqColumns / kPanelColumns) * kKvPanelStride);
        if (i == 0) {
          if (loads && !single && !first) queries.next(args, barriers, tile, walk, shared);
          first = false;
          bar_warp_sync();
          tickets.await(walk, head, block);
        }
        product.wait();
        if (i == kBlockQ / 64 * kDqProducts - 1) {
          bar_warp_sync();
          if (lane_index() == 0) mbarrier_arrive(barriers.ds_empty(ds.stage));
        }
        product.add(sums, last);
        // Four warps have 16 queries each.
        sums += last ? (64 / 16 * kChunks - (kDqProducts - 1) * (kDqColumns / 8)) * kSumsOfFragment : kDqColumns / 8 * kSumsOfFragment;
      }
      tickets.pass();
      if (loads && single) queries.next(args, barriers, tile, walk, shared);
      bar_warp_sync();
      ds.advance();
    }
  }
}
