// What warpgroup 0 multiplies: dS of the CTA's own tile with K. A CTA computes all columns of dQ.
struct DqScores {
  static constexpr i32 kProducts = kDqProducts;  // for 64 queries

  __device__ __forceinline__ explicit DqScores(const KeyTile&) {}
  // Columns of a product, counted in products.
  __device__ __forceinline__ i32 part(i32 product) const { return product; }

  __device__ __forceinline__ void load_keys(const Arguments& args, const Barriers& barriers, const KeyTile& tile, i32 head_kv, u32 shared) const {
    load_tile<kKvPanelStride>(shared + kKOffset, args.k_map, barriers.k_full(), head_kv, place_of_keys(args, tile.sequence, tile.tile));
  }
  __device__ __forceinline__ void expect(const Barriers&, PipelineSlot<kDsStages>) const {}
  __device__ __forceinline__ void issue(DqFragments& dq, const Barriers&, PipelineSlot<kDsStages> ds, i32 rows, i32 part, u32 shared) const {
    wgmma_fence();
    issue_dq<true>(dq, shared + kDsOffset + ds.stage * kDsTileBytes + rows * kPanelBytes, shared + kKOffset + part * kDqPartBytes);
    wgmma_commit_group();
  }
  __device__ __forceinline__ void release(const Barriers& barriers, PipelineSlot<kDsStages> ds) const {
    if (lane_index() == 0) mbarrier_arrive(barriers.ds_empty(ds.stage));
  }
};
