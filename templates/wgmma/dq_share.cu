// A softmax warpgroup's share of dQ of each block, transposed: dQᵀ = Kᵀ dSᵀ over all keys of the tile, for 64 of the head dim and kDqQueries queries.
constexpr i32 kDqRows = 64, kDqRowTiles = (kHeadDimQk + kDqRows - 1) / kDqRows;
constexpr i32 kDqQueries = kBlockQ * kDqRowTiles / kSoftmaxWarpgroups;
constexpr bool kDqOfAllQueries = kDqQueries == kBlockQ;  // a warpgroup has all queries of its row tile
static_assert(kSoftmaxWarpgroups % kDqRowTiles == 0 && kDqQueries % 8 == 0 && kHeadDimQk % 16 == 0);
using DqFragments = float[kDqQueries / 2];

// The place in a ring that lies kBack before another one.
template <i32 kBack, i32 kCount>
__device__ __forceinline__ PipelineSlot<kCount> slot_before(PipelineSlot<kCount> slot) {
  static_assert(kBack <= kCount);
  if (slot.stage >= kBack) return {slot.stage - kBack, slot.parity};
  return {slot.stage - kBack + kCount, slot.parity ^ 1};
}

struct DqShare {
  Barriers barriers;
  u32 shared;
  DqFragments dq;
  i32 row_tile, first_query;  // of the head dim; of the block
  i32 sixteen_dims;           // of the warp; they may lie beyond the head dim
  float* sums;                // of the next block, from the warp's first fragment on
//% if visible_blocks
  i32 distance;               // to the block after that
//% end

  __device__ __forceinline__ DqShare(const SoftmaxWarpgroup& warpgroup)
      : barriers(warpgroup.barriers), shared(warpgroup.shared), row_tile(kDqOfAllQueries ? warpgroup.index : warpgroup.index % kDqRowTiles),
        first_query(kDqOfAllQueries ? 0 : warpgroup.index / kDqRowTiles * kDqQueries), sixteen_dims(row_tile * (kDqRows / 16) + static_cast<i32>(warp_index() % kWarpgroupWarps)) {}

  // A query head of the tile begins. head: counted as workspaces have them.
  __device__ __forceinline__ void begin_head(const Arguments& args, const Sequence& sequence, const QueryWalk& walk, i32 head) {
    sums = args.d_q_sums + transposed_sums_place<kBlockQ>(head, walk.blocks.all, first_block_of_queries<kBlockQ>(sequence) + walk.blocks.begin) + transposed_fragment_place<kBlockQ>(sixteen_dims, first_query / 8);
  }

  // dQᵀ = Kᵀ dSᵀ of the block whose dS lies there, when every warpgroup has handed over its part.
  __device__ __forceinline__ void issue(PipelineSlot<kDsStages> ds) {
    mbarrier_wait_parity(barriers.ds_full(ds.stage), ds.parity);
    const u32 place = tile_place(shared + kKOffset + row_tile * (kDqRows / kPanelColumns) * kKvPanelStride, kKvPanelStride);
    const u32 keys = static_cast<u32>(opaque_i32(static_cast<i32>(place)));  // as in issue_scores()
    const u32 scores = tile_place(shared + kDsOffset + ds.stage * kDsTileBytes + first_query * kPanelBytes, kQPanelStride);
    wgmma_fence();
    wgmma_ss_transposed_a_first<false>(dq, matrix_descriptor(keys), matrix_descriptor(scores));
#pragma unroll
    for (i32 step = 1; step < kKeySteps; ++step)
      wgmma_ss_transposed_a<true, false>(dq, matrix_descriptor(keys + row_step(step)), matrix_descriptor(scores + column_step(step, kQPanelStride)));
    wgmma_commit_group();
  }
  // When the product has landed: leaves dS and adds to the block's sums.
  __device__ __forceinline__ void add(PipelineSlot<kDsStages> ds) {
    wgmma_landed(dq);
    bar_warp_sync();
    if (lane_index() == 0) mbarrier_arrive(barriers.ds_empty(ds.stage));
    if (kHeadDimQk % kDqRows == 0 || sixteen_dims < kHeadDimQk / 16) add_fragments();
//% if visible_blocks
    sums += kHeadDimQk * kBlockQ * distance;
//% else
    sums += kHeadDimQk * kBlockQ;
//% end
  }

//% include wgmma/dq_adds_${dq_adds}
};
