// What warpgroup 0 multiplies: dS of both tiles of the cluster with K of both. A CTA computes one half of the columns of dQ; of the other CTA's K it
// has these.
struct DqScores {
  static constexpr i32 kProducts = kDqProducts / kCluster;  // for 64 queries
  static constexpr i32 kPeerPanels = kProducts * kDqColumns / kPanelColumns;
  static_assert(kDqProducts % kCluster == 0 && kCluster == 2);
  i32 rank;

  __device__ __forceinline__ explicit DqScores(const KeyTile&) : rank(static_cast<i32>(cluster_cta_rank())) {}
  // Columns of a product, counted in products.
  __device__ __forceinline__ i32 part(i32 product) const { return rank * kProducts + product; }

  // K of the own tile, and the columns that count of the other one's.
  __device__ __forceinline__ void load_keys(const Arguments& args, const Barriers& barriers, const KeyTile& tile, i32 head_kv, u32 shared) const {
    const MapPlace own = place_of_keys(args, tile.sequence, tile.tile), peer = place_of_keys(args, tile.sequence, tile.tile ^ 1);
    mbarrier_arrive_expect_tx(barriers.k_full(), (kPanels + kPeerPanels) * kKvPanelStride);
#pragma unroll
    for (i32 panel = 0; panel < kPanels; ++panel)
      load_box(shared + kKOffset + panel * kKvPanelStride, args.k_map, barriers.k_full(), panel * kPanelColumns, head_kv, own);
#pragma unroll
    for (i32 panel = 0; panel < kPeerPanels; ++panel)
      load_box(shared + kPeerKOffset + panel * kKvPanelStride, args.k_map, barriers.k_full(), (rank * kPeerPanels + panel) * kPanelColumns, head_kv, peer);
  }
  // To be called once for each block, before the other CTA's dS is waited for.
  __device__ __forceinline__ void expect(const Barriers& barriers, PipelineSlot<kDsStages> ds) const {
    if (thread_index() == 0) mbarrier_arrive_expect_tx(barriers.peer_ds_full(ds.stage), kDsTileBytes);
  }
  // The other CTA's dS is waited for behind the first product.
  __device__ __forceinline__ void issue(DqFragments& dq, const Barriers& barriers, PipelineSlot<kDsStages> ds, i32 rows, i32 part, u32 shared) const {
    wgmma_fence();
    issue_dq<true>(dq, shared + kDsOffset + ds.stage * kDsTileBytes + rows * kPanelBytes, shared + kKOffset + part * kDqPartBytes);
    wgmma_commit_group();
    mbarrier_wait_parity(barriers.peer_ds_full(ds.stage), ds.parity);
    wgmma_fence();
    issue_dq<false>(dq, shared + kPeerDsOffset + ds.stage * kDsTileBytes + rows * kPanelBytes, shared + kPeerKOffset + (part - rank * kProducts) * kDqPartBytes);
    wgmma_commit_group();
  }
  // Both CTAs may fill the buffer anew when both have multiplied what is in it.
  __device__ __forceinline__ void release(const Barriers& barriers, PipelineSlot<kDsStages> ds) const {
    if (lane_index() != 0) return;
    mbarrier_arrive(barriers.ds_empty(ds.stage));
    mbarrier_arrive_cluster(barriers.ds_empty(ds.stage), static_cast<u32>(rank ^ 1));
  }
};
