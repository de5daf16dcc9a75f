// The blocks of queries that attend to any of a warpgroup's 64 keys. Others of the tile's walk are dead for it: they attend to other keys.
struct LiveBlocks {
  i32 begin, unmasked_begin, unmasked_end, end;
//% if alibi
  i32 diagonal_key;  // the query on whose diagonal the first of the keys lies, which may be none of the sequence's
//% end

  __device__ __forceinline__ LiveBlocks(const Arguments& args, const KeyTile& tile, const QueryWalk& walk, i32 first_key) {
    const i32 keys = tile.first_key + tile.keys - first_key;
    begin = end = walk.blocks.end;
//% if alibi
    diagonal_key = query_on_diagonal(args, tile.sequence, first_key);
//% end
    if (keys <= 0) return;
    const QueryBlocks<true> blocks(args, tile.sequence, first_key, keys < kWarpgroupKeys ? keys : kWarpgroupKeys);
    if (blocks.begin >= blocks.end) return;
    begin = blocks.begin;
    unmasked_begin = blocks.unmasked_begin;
//% if query_parts
//% if masked_begin
    unmasked_end = blocks.unmasked_end;
    if (end > blocks.end) end = blocks.end;
//% else
    unmasked_end = end;
//% end
    if (begin < walk.blocks.begin) begin = walk.blocks.begin;
    if (begin >= end) begin = end = walk.blocks.end;
//% else
//% if masked_begin
    unmasked_end = blocks.unmasked_end;
//% else
    unmasked_end = blocks.end;
//% end
    end = blocks.end;
//% end
//% if pair_tiles
    // What tensors of pairs hold for queries that do not exist may be anything.
    const i32 whole = query_count(args, tile.sequence) / kBlockQ;
    if (unmasked_end > whole) unmasked_end = whole;
//% end
//% if short_sequences
    begin = uniform(begin);
    unmasked_begin = uniform(unmasked_begin);
    unmasked_end = uniform(unmasked_end);
    end = uniform(end);
//% if alibi
    diagonal_key = uniform(diagonal_key);
//% end
//% end
  }
//% if alibi_of_rows
  // Also where some keys lie before the diagonals of some queries and others beyond them.
  __device__ __forceinline__ bool masked(i32 block) const {
    const i32 first = block * kBlockQ;
    const bool crosses = diagonal_key + kWarpgroupKeys - 1 > first && diagonal_key < first + kBlockQ - 1;
    return crosses || block < unmasked_begin || block >= unmasked_end;
  }
//% else
  __device__ __forceinline__ bool masked(i32 block) const { return block < unmasked_begin || block >= unmasked_end; }
//% end
};

// Where a softmax warpgroup stands in the rings, and its products. Its rows are 64 keys.
struct SoftmaxWarpgroup {
  Barriers barriers;
  u32 shared;
  i32 index;         // among the softmax warpgroups
  i32 first_key;     // of its 64, in the tile
  PipelineSlot<kStages> q;
  PipelineSlot<kDoStages> d_o;
  PipelineSlot<kDsStages> ds;
  TileSlot slot;
//% if split
  PipelineSlot<kDsStages> p;
//% end

  __device__ __forceinline__ SoftmaxWarpgroup(const Barriers& barriers, u32 shared, i32 index)
      : barriers(barriers), shared(shared), index(index), first_key(index / kWarpgroupsOfKeys * kWarpgroupKeys) {}

  __device__ __forceinline__ i32 first_key_of_warp() const { return first_key + static_cast<i32>(warp_index() % kWarpgroupWarps * 16); }
  __device__ __forceinline__ i32 first_key_of_thread() const { return first_key + static_cast<i32>(warp_index() % kWarpgroupWarps * 16 + lane_index() / 4); }

//% if dropout
  __device__ __forceinline__ u32 dropout_place() const { return shared + kDropoutOffset + 16 * (kWarpgroupWarps * index + warp_index() % kWarpgroupWarps); }
  // Begins a query head, whose number among those that the tile walks through is `walked`.
  __device__ __forceinline__ void begin_dropout(const Arguments& args, const KeyTile& tile, i32 walked) const {
    HeadDropout(args, tile.sequence.batch, TileHeads::of_queries(args, tile.head, walked)).put(dropout_place());
  }
  __device__ __forceinline__ KeyDropout dropout(const KeyTile& tile) const { return KeyDropout(HeadDropout(dropout_place()), tile.first_key + first_key_of_warp()); }

//% end
  __device__ __forceinline__ void wait_k() const { mbarrier_wait_parity(barriers.k_full(), slot.parity()); }
  __device__ __forceinline__ void wait_v() const { mbarrier_wait_parity(barriers.v_full(), slot.parity()); }
  __device__ __forceinline__ void wait_q() const { mbarrier_wait_parity(barriers.q_full(q.stage), q.parity); }
  __device__ __forceinline__ void wait_do() const { mbarrier_wait_parity(barriers.d_o_full(d_o.stage), d_o.parity); }
  __device__ __forceinline__ void release_q(i32 stage) const {
    if (lane_index() == 0) mbarrier_arrive(barriers.q_empty(stage));
  }
  __device__ __forceinline__ void release_do() {
    if (lane_index() == 0) mbarrier_arrive(barriers.d_o_empty(d_o.stage));
    d_o.advance();
  }
  __device__ __forceinline__ u32 lse() const { return shared + kLseOffset + q.stage * kRowsBytes; }
  __device__ __forceinline__ u32 delta() const { return shared + kDeltaOffset + d_o.stage * kRowsBytes; }

  // Where warpgroups are ordered, each issues S and then dP when its predecessor has. The last one gives the first its first turn, which the first one
  // takes back in the end; not at each of several tiles, since the last one may then come twice while the first is still on its way.
  __device__ __forceinline__ void begin_order() const {
    if (index == kSoftmaxWarpgroups - 1) pass_order();
  }
  __device__ __forceinline__ void end_order() const {
    if (index == 0) wait_order();
  }
  __device__ __forceinline__ void wait_order() const {
    if (kOrderedWarpgroups) bar_sync_named(kOrder + index, 2 * kWarpgroup);
  }
  __device__ __forceinline__ void pass_order() const {
    if (kOrderedWarpgroups) bar_arrive_named(kOrder + (index + 1 == kSoftmaxWarpgroups ? 0 : index + 1), 2 * kWarpgroup);
  }

  // Sᵀ = K Qᵀ
  __device__ __forceinline__ void issue_s(ScoreFragments& s) const { issue_scores(s, kKOffset, shared + kQOffset + q.stage * kQTileBytes); }
  // dPᵀ = V dOᵀ
  __device__ __forceinline__ void issue_dp(ScoreFragments& dp) const { issue_scores(dp, kVOffset, shared + kDoOffset + d_o.stage * kQTileBytes); }
  // dV += Pᵀ dO
  __device__ __forceinline__ void issue_dv(GradientFragments& dv, const PackedScores& p) const { issue_gradient(dv, p, shared + kDoOffset + d_o.stage * kQTileBytes); }
  // dK += dSᵀ Q
  __device__ __forceinline__ void issue_dk(GradientFragments& dk, const PackedScores& ds_of_block, i32 stage) const {
    issue_gradient(dk, ds_of_block, shared + kQOffset + stage * kQTileBytes);
  }

//% if persistent
  // When all products with K, or with V, of a tile have landed.
  __device__ __forceinline__ void leave_k() const {
    bar_warp_sync();
    if (lane_index() == 0) mbarrier_arrive(barriers.k_empty());
  }
  __device__ __forceinline__ void leave_v() const {
    bar_warp_sync();
    if (lane_index() == 0) mbarrier_arrive(barriers.v_empty());
  }
//% if loads_ahead
  // A warp of the last warpgroup copies the next tile's V, as soon as all have left this one: warpgroup 0 is behind them.
  __device__ __forceinline__ void load_next_v(const Arguments& args, const KeyTilesOfCta& tiles) const {
    if (index != kSoftmaxWarpgroups - 1 || warp_index() % kWarpgroupWarps != 0) return;
    const i32 next = tiles.after(slot);
    if (next < 0) return;
    mbarrier_wait_parity(barriers.v_empty(), slot.parity());
    bar_warp_sync();
    const KeyTile tile(args, next);
    if (lane_index() == 0)
      load_tile<kKvPanelStride>(shared + kVOffset, args.v_map, barriers.v_full(), TileHeads::of_keys(args, tile.head), place_of_keys(args, tile.sequence, tile.tile));
  }
//% end
//% if !split
  // When the last scores of a tile and their gradients have landed.
  __device__ __forceinline__ void leave_operands() const {
    leave_v();
//% if !dq_by_softmax
    leave_k();
//% end
  }
//% end
//% end

//% if slopes_shared
  // Pᵀ times the derivative of the scores' change waits where dSᵀ of the block is to lie, each warp's in its own part: registers are short until dPᵀ has
  // come.
  __device__ __forceinline__ u32 slopes() const { return place_of_scores(shared + kDsOffset + ds.stage * kDsTileBytes, first_key_of_warp()); }
//% end
//% if !p_in_ds
  // Until the buffer of the block's dS is free.
  __device__ __forceinline__ void wait_ds() const { mbarrier_wait_parity(barriers.ds_empty(ds.stage), ds.parity ^ 1); }
//% end
  // Hands dSᵀ of a block to ${ds_readers}${to_peer}.
  __device__ __forceinline__ void publish(const PackedScores& ds_of_block) {
//% if !p_in_ds
    wait_ds();
//% end
    put_scores(shared + kDsOffset + ds.stage * kDsTileBytes, first_key_of_warp(), ds_of_block);
    fence_proxy_async();
//% if clustered
    // The panel of these 64 keys goes to the other CTA at once.
    static_assert(kPanelColumns == kWarpgroupKeys);
    bar_sync_named(kScorePanel + static_cast<u32>(index), kWarpgroup);
    if (thread_index() % kWarpgroup == 0) {
      const u32 panel = ds.stage * kDsTileBytes + first_key / kPanelColumns * kQPanelStride;
      cp_async_bulk_copy_cluster(shared + kPeerDsOffset + panel, shared + kDsOffset + panel, kQPanelStride, barriers.peer_ds_full(ds.stage), cluster_cta_rank() ^ 1);
    }
//% end
    bar_warp_sync();
    if (lane_index() == 0) mbarrier_arrive(barriers.ds_full(ds.stage));
    ds.advance();
  }

 private:
  // Keys (of K or V) times queries (of Q or dO) over the head dim.
  __device__ __forceinline__ void issue_scores(ScoreFragments& scores, u32 kv_offset, u32 tile) const {
    const u32 place = tile_place(shared + kv_offset + first_key * kPanelBytes, kKvPanelStride), columns = tile_place(tile, kQPanelStride);
    // Descriptors of many steps would be kept from block to block, beyond what uniform registers hold: each would come from a lane's.
    const u32 rows = kDimSteps > ${most_kept_steps} ? static_cast<u32>(opaque_i32(static_cast<i32>(place))) : place;
    wgmma_fence();
    wgmma_ss_first<false>(scores, matrix_descriptor(rows), matrix_descriptor(columns));
#pragma unroll
    for (i32 step = 1; step < kDimSteps; ++step)
      wgmma_ss<true, false>(scores, matrix_descriptor(rows + column_step(step, kKvPanelStride)), matrix_descriptor(columns + column_step(step, kQPanelStride)));
    wgmma_commit_group();
  }
  // Scores of a block times its queries (of Q or dO).
  __device__ __forceinline__ void issue_gradient(GradientFragments& gradient, const PackedScores& scores, u32 tile) const {
    const u32 queries = tile_place(tile, kQPanelStride);
    wgmma_fence();
#pragma unroll
    for (i32 step = 0; step < kQuerySteps; ++step) wgmma_rs<true, true>(gradient, scores, step, matrix_descriptor(queries + row_step(step)));
    wgmma_commit_group();
  }
};
