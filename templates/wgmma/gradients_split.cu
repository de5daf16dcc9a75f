// Two warpgroups share the same 64 keys: the first computes S, P and dV, the second dP, dS and dK. P goes from one to the other through shared
// memory, where each thread of the second reads what its like of the first has written: both hold the same elements.
//% if score_slope
// It goes there times the derivative of the scores' change, since the second needs it for dS alone.
//% end
//% if p_in_ds
// P lies in the buffer that dS takes when all of P has been read. So the first warpgroup waits for the buffer, also where a block is passed over, and
// the second for the first.
//% end
constexpr i32 kKeyGroups = kSoftmaxWarpgroups / 2;
constexpr u32 kPBytes = kBlockQ * kWarpgroup;  // of a group of keys
//% if p_in_ds
constexpr u32 kPPlace = kDsOffset, kPStageBytes = kDsTileBytes;
static_assert(kKeyGroups * kPBytes == kDsTileBytes);
//% else
constexpr u32 kPPlace = kPOffset, kPStageBytes = kKeyGroups * kPBytes;
//% end

struct ProbabilityPipe {
  Barriers barriers;
  i32 group;
  u32 place;  // of this thread in the first stage

  __device__ __forceinline__ ProbabilityPipe(const Barriers& barriers, u32 shared, i32 group)
      : barriers(barriers), group(group), place(shared + kPPlace + group * kPBytes + thread_index() % kWarpgroup * 16) {}

  // Before P is put.
  __device__ __forceinline__ void wait_empty(const PipelineSlot<kDsStages>& slot) const {
//% if p_in_ds
    mbarrier_wait_parity(barriers.ds_empty(slot.stage), slot.parity ^ 1);
//% else
    mbarrier_wait_parity(barriers.p_empty(slot.stage * kKeyGroups + group), slot.parity ^ 1);
//% end
  }
  // When P has been put.
  __device__ __forceinline__ void pass(PipelineSlot<kDsStages>& slot) const {
    bar_warp_sync();
    if (lane_index() == 0) mbarrier_arrive(barriers.p_full(slot.stage * kKeyGroups + group));
    slot.advance();
  }
  // Before P is taken.
  __device__ __forceinline__ void wait_full(const PipelineSlot<kDsStages>& slot) const {
    mbarrier_wait_parity(barriers.p_full(slot.stage * kKeyGroups + group), slot.parity);
  }
  // When P has been taken.
  __device__ __forceinline__ void release(PipelineSlot<kDsStages>& slot) const {
//% if p_in_ds
    bar_sync_named(kProbabilitiesTaken + group, kWarpgroup);  // dS may be written
//% else
    bar_warp_sync();
    if (lane_index() == 0) mbarrier_arrive(barriers.p_empty(slot.stage * kKeyGroups + group));
//% end
    slot.advance();
  }

  __device__ __forceinline__ void put(const PackedScores& p, PipelineSlot<kDsStages>& slot) const {
    wait_empty(slot);
#pragma unroll
    for (i32 i = 0; i < kBlockQ / 16; ++i)
      st_shared_v4_b32(place + slot.stage * kPStageBytes + i * kWarpgroup * 16, {p[4 * i], p[4 * i + 1], p[4 * i + 2], p[4 * i + 3]});
    pass(slot);
  }
  __device__ __forceinline__ void take(PackedScores& p, PipelineSlot<kDsStages>& slot) const {
    wait_full(slot);
#pragma unroll
    for (i32 i = 0; i < kBlockQ / 16; ++i) {
      const Vec4 words = ld_shared_v4_b32(place + slot.stage * kPStageBytes + i * kWarpgroup * 16);
      p[4 * i] = words.x;
      p[4 * i + 1] = words.y;
      p[4 * i + 2] = words.z;
      p[4 * i + 3] = words.w;
    }
    release(slot);
  }
};

// What the first of the two holds. A buffer of Q or dO is left when what was computed from its LSE or delta has been put: an arrival that follows a
// load at once was seen to overtake it, and TMA then to fill the buffer before the load had read it.
struct ValueGradients {
  const Arguments& args;
  const KeyTile& tile;
  SoftmaxWarpgroup warpgroup;
  ProbabilityPipe pipe;
  ScoreFunction score;
//% if pair_tensors
  i32 head;          // of the queries
//% end
//% if alibi
  float slope;       // of the query head
  i32 diagonal_key;  // as LiveBlocks has it
//% end
  ScoreFragments s;
//% if score_slope
  PackedScores p, sloped;  // sloped: P times the derivative of the scores' change
//% else
  PackedScores p;
//% end
  GradientFragments dv;

  // Leaves s unset: the first product overwrites it.
  __device__ __forceinline__ ValueGradients(const Arguments& args, const KeyTile& tile, const SoftmaxWarpgroup& warpgroup, const ProbabilityPipe& pipe)
      : args(args), tile(tile), warpgroup(warpgroup), pipe(pipe)${and_score} {
#pragma unroll
    for (i32 i = 0; i < kHeadDimV / 2; ++i) dv[i] = 0;
  }
//% if head_terms
  __device__ __forceinline__ void begin_head(const LiveBlocks& ${live}, i32 walked) {
//% if dropout
    warpgroup.begin_dropout(args, tile, walked);
//% end
//% if pair_tensors
    head = TileHeads::of_queries(args, tile.head, walked);
//% end
//% if alibi
    slope = alibi_slope(args, tile.sequence, TileHeads::of_queries(args, tile.head, walked));
    diagonal_key = live.diagonal_key;
//% end
  }
//% end
  // K: for the tile's S.
  __device__ __forceinline__ void wait_operand() const { warpgroup.wait_k(); }
//% if persistent
  __device__ __forceinline__ void leave_operand() const { warpgroup.leave_k(); }
//% end
  // Turns S into P.
  __device__ __forceinline__ void exponentiate_scores(i32 block, bool masked) {
    score.modify(s);
//% if alibi
    const AlibiPlace place(diagonal_key, warpgroup.first_key_of_thread() - warpgroup.first_key, block);
//% end
//% if alibi_mended
    if (masked) {
      mend_scores_beyond(s, slope, args.softmax_scale_log2, place);
      mask_scores(s, args, tile.sequence, tile.first_key + warpgroup.first_key_of_thread(), block * kBlockQ);
    }
//% else
    if (masked) mask_scores(s, args, tile.sequence, tile.first_key + warpgroup.first_key_of_thread(), block * kBlockQ);
//% end
//% if pair_tensors
//% if pair_tiles
    load_pairs(args, tile.sequence, warpgroup.shared, warpgroup.q.stage, head, block * kBlockQ, tile.first_key, warpgroup.first_key_of_warp());
    const PairElements pairs(args, warpgroup.shared, warpgroup.q.stage, warpgroup.first_key_of_warp());
//% if whole_apart
    if (!masked)
      exponentiate(s${and_slopes}, args.softmax_scale_log2, LseColumns(warpgroup.lse()), TermsOfPairs<false>{pairs${and_alibi_of_pairs}});
    else
//% end
      exponentiate(s${and_slopes}, args.softmax_scale_log2, LseColumns(warpgroup.lse()), TermsOfPairs<true>{pairs${and_alibi_of_pairs}});
//% else
    exponentiate(s${and_slopes}, args.softmax_scale_log2, LseColumns(warpgroup.lse()), TermsOfPairs{args, tile.sequence, head, block * kBlockQ + static_cast<i32>(lane_index() % 4 * 2), tile.first_key + warpgroup.first_key_of_thread()${and_alibi_of_pairs}});
//% end
//% else
//% if alibi
//% if alibi_mended
    exponentiate(s${and_slopes}, args.softmax_scale_log2, LseColumns(warpgroup.lse()), AlibiOfRows(slope, place));
//% else
//% if alibi_of_rows
    if (masked)
      exponentiate(s${and_slopes}, args.softmax_scale_log2, LseColumns(warpgroup.lse()), AlibiOfPairs(slope, place));
    else
      exponentiate(s${and_slopes}, args.softmax_scale_log2, LseColumns(warpgroup.lse()), AlibiOfRows(slope, place));
//% else
    exponentiate(s${and_slopes}, args.softmax_scale_log2, LseColumns(warpgroup.lse()), AlibiOfPairs(slope, place));
//% end
//% end
//% else
    exponentiate(s${and_slopes}, args.softmax_scale_log2, LseColumns(warpgroup.lse()));
//% end
//% end
  }
//% if p_in_ds
  __device__ __forceinline__ void skip_probabilities() {
    pipe.wait_empty(warpgroup.p);
    pipe.pass(warpgroup.p);
  }
//% end
  // Hands P over, and leaves Q, with which LSE came. To be called when no product reads P of the block before any more.
  __device__ __forceinline__ void hand_over() {
//% if dropout
//% if capped
    pack_scores(p, s);
    drop_scores(p, sloped);
//% else
    keep_scores(p, sloped);
//% end
//% else
    pack_scores(p, s);
//% end
    pipe.put(${sloped}, warpgroup.p);
    warpgroup.release_q(warpgroup.q.stage);
    warpgroup.q.advance();
  }
  __device__ __forceinline__ void issue_dv() {
    warpgroup.wait_do();
    warpgroup.issue_dv(dv, p);  // dV = dV + Pᵀ dO
  }
  __device__ __forceinline__ void finish_dv() {
    wgmma_wait_group<0>();
    wgmma_landed(dv);
    warpgroup.release_do();
  }
};

// What the second one holds.
struct KeyGradients {
//% if divides
  const Arguments& args;
//% end
  SoftmaxWarpgroup warpgroup;
  ProbabilityPipe pipe;
//% if !score_slope
  ScoreFunction score;  // empty and unused: without it ptxas numbers some kernels' registers otherwise, and they count as new ones
//% end
  ScoreFragments dp;
//% if dk_first
  PackedScores ds, stored;  // the same: one is dK's operand, the other one is put into shared memory meanwhile
//% else
  PackedScores ds;
//% end
  GradientFragments dk;

  // Leaves dp unset: the first product overwrites it.
//% if divides
  __device__ __forceinline__ KeyGradients(const Arguments& args, const SoftmaxWarpgroup& warpgroup, const ProbabilityPipe& pipe) : args(args), warpgroup(warpgroup), pipe(pipe) {
//% else
  __device__ __forceinline__ KeyGradients(const SoftmaxWarpgroup& warpgroup, const ProbabilityPipe& pipe) : warpgroup(warpgroup), pipe(pipe) {
//% end
#pragma unroll
    for (i32 i = 0; i < kHeadDimQk / 2; ++i) dk[i] = 0;
  }
//% if head_terms
  __device__ __forceinline__ void begin_head(const LiveBlocks&, i32 /*walked*/) {}
//% end
  // V: for the tile's dP.
  __device__ __forceinline__ void wait_operand() const { warpgroup.wait_v(); }
//% if persistent
  __device__ __forceinline__ void leave_operand() const { warpgroup.leave_v(); }
//% end
  // Turns dP into dS.
  __device__ __forceinline__ void differentiate_scores(const DeltaColumns& delta) {
    PackedScores p;
    pipe.take(p, warpgroup.p);
    differentiate(dp, p, delta${and_dropout_scale});
  }
//% if p_in_ds
  __device__ __forceinline__ void skip_probabilities() {
    pipe.wait_full(warpgroup.p);
    warpgroup.p.advance();
  }
//% end
//% if dk_first
  // To be called when no product reads dS of the block before any more. What a product reads may not be touched: so there are two.
  __device__ __forceinline__ void pack() {
    pack_scores(ds, dp);
#pragma unroll
    for (i32 i = 0; i < kBlockQ / 4; ++i) stored[i] = static_cast<u32>(opaque_i32(static_cast<i32>(ds[i])));
  }
  // Hands dS over, and leaves dO, with which delta came.
  __device__ __forceinline__ void publish() {
    warpgroup.publish(stored);
    warpgroup.release_do();
  }
//% else
  // Hands dS over, and leaves dO, with which delta came. To be called when no product reads dS of the block before any more.
  __device__ __forceinline__ void publish() {
    pack_scores(ds, dp);
    warpgroup.publish(ds);
    warpgroup.release_do();
  }
//% end
  __device__ __forceinline__ void issue_dk() {
    warpgroup.wait_q();
    warpgroup.issue_dk(dk, ds, warpgroup.q.stage);  // dK = dK + dSᵀ Q
  }
  __device__ __forceinline__ void finish_dk() {
    wgmma_wait_group<0>();
    wgmma_landed(dk);
    warpgroup.release_q(warpgroup.q.stage);
    warpgroup.q.advance();
  }
};

//% include wgmma/split_steps_${query_step}

template <class Gradients>
__device__ __forceinline__ void pass_over(Gradients& gradients, bool publishes) {
//% if p_in_ds
  gradients.skip_probabilities();
//% end
  skip_block(gradients.warpgroup, publishes);
}

// Walks through the tile's blocks: those that attend to none of the 64 keys are passed over.
template <class Gradients>
__device__ __forceinline__ void walk_blocks(const Arguments& args, const KeyTile& tile, const QueryWalk& walk, Gradients& gradients, bool publishes) {
  const LiveBlocks live(args, tile, walk, tile.first_key + gradients.warpgroup.first_key);
  for (i32 head = 0; head < TileHeads::walked(args); ++head) {
//% if head_terms
    gradients.begin_head(live, head);
//% end
    i32 block = walk.blocks.begin;
//% if visible_blocks
#pragma unroll 1
    for (; block < live.begin && block < walk.blocks.end; block = walk.after(block)) pass_over(gradients, publishes);
//% else
#pragma unroll 1
    for (; block < live.begin; ++block) pass_over(gradients, publishes);
//% end
    if (block < live.end) {
      query_step<true>(gradients, block, live.masked(block));
//% if visible_blocks
#pragma unroll 1
      for (block = walk.after(block); block < live.end; block = walk.after(block)) query_step<false>(gradients, block, live.masked(block));
//% else
#pragma unroll 1
      for (++block; block < live.end; ++block) query_step<false>(gradients, block, live.masked(block));
//% end
//% if persistent
      if (head == TileHeads::walked(args) - 1) gradients.leave_operand();
//% end
      end_walk(gradients);
    }
//% if masked_begin
//% if visible_blocks
#pragma unroll 1
    for (; block < walk.blocks.end; block = walk.after(block)) pass_over(gradients, publishes);
//% else
#pragma unroll 1
    for (; block < walk.blocks.end; ++block) pass_over(gradients, publishes);
//% end
//% end
  }
//% if persistent
  if (live.begin >= live.end) gradients.leave_operand();
//% end
}

// What a softmax warpgroup does with a tile: dV or dK of its keys, from all blocks of queries.
__device__ __forceinline__ void add_key_gradients(const Arguments& args, const Barriers& barriers, i32 index, SoftmaxWarpgroup& warpgroup${and_tiles}) {
  const KeyTile tile(args, index);
  const QueryWalk walk(args, tile);
  const i32 first_of_warp = warpgroup.first_key + static_cast<i32>(warp_index() % kWarpgroupWarps * 16);
  const ProbabilityPipe pipe(barriers, warpgroup.shared, warpgroup.index / 2);
  if (warpgroup.index % 2 == 0) {
    ValueGradients values(args, tile, warpgroup, pipe);
    if (walk.any()) {
      values.wait_operand();
      walk_blocks(args, tile, walk, values, false);
      warpgroup = values.warpgroup;
//% if persistent
    } else {
      values.wait_operand();
      values.leave_operand();
//% end
    }
    const KeyTile stored(args, opaque_i32(index));
    await_key_sums(args, stored);
    store_dv(args, stored, first_of_warp, values.dv);
  } else {
    KeyGradients keys(${args_of_keys}warpgroup, pipe);
    if (walk.any()) {
      keys.wait_operand();
      walk_blocks(args, tile, walk, keys, true);
      warpgroup = keys.warpgroup;
//% if persistent
    } else {
      keys.wait_operand();
      keys.leave_operand();
//% end
    }
//% if persistent
    warpgroup.load_next_v(args, tiles);
//% end
    const KeyTile stored(args, opaque_i32(index));
    await_key_sums(args, stored);
    store_dk(args, stored, first_of_warp, keys.dk);
  }
  pass_key_sums(args, KeyTile(args, opaque_i32(index)));
}
