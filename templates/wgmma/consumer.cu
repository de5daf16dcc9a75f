//% if uniform_blocks
__device__ __forceinline__ i32 uniform(i32 x) { return static_cast<i32>(redux_sync_or_b32(static_cast<u32>(x))); }

//% end
//% if row_heads_of_terms
constexpr i32 kRowHeads = ${row_heads};  // heads of a thread's two rows: one where they have one

//% end
// The part of a warpgroup in a tile: 64 rows, and the blocks of keys that they attend to.
struct RowsOfWarpgroup {
  Sequence sequence;
  i32 first_row;  // in the sequence, of this thread's first row
  KeyBlocks blocks;
  i32 unused_blocks;  // of the tile, behind this warpgroup's
//% if masked_begin
  i32 unused_first_blocks;  // and before them
//% else
  static constexpr i32 unused_first_blocks = 0;
//% end
//% if visible_blocks
  VisibleBlocks visible;
//% end
//% if loads_pairs
  i32 heads[kRowHeads];  // of this thread's rows
//% end
//% if pair_tiles
  i32 head;  // the tile's first
//% end
//% if alibi
  float slopes[kRowHeads];
//% if alibi_shared
  i32 origin;             // AlibiKeys counts from the diagonal of the tile's first row
//% end
//% if alibi_beyond
  i32 beyond_begin, beyond_end;  // the blocks that need no mask and lie beyond the diagonals of all rows
//% end
//% end

  __device__ __forceinline__ RowsOfWarpgroup(const Arguments& args, const QueryTile& tile, i32 consumer) : sequence(tile.sequence) {
    const i32 first = 64 * consumer, last = (kEvenTiles || tile.rows > first + 64 ? first + 64 : tile.rows) - 1;
    first_row = tile.first_row + first + static_cast<i32>(warp_index() % 4 * 16 + lane_index() / 4);
//% if masked_begin
    blocks.begin = KeyBlocks::begin_of(args, sequence, QueryTile::position_of(tile.first_row + first));
    blocks.unmasked_begin = KeyBlocks::unmasked_begin_of(args, sequence, QueryTile::position_of(tile.first_row + first), QueryTile::position_of(tile.first_row + last));
//% end
    blocks.end = first < tile.rows ? KeyBlocks::end_of(args, sequence, QueryTile::position_of(tile.first_row + first), QueryTile::position_of(tile.first_row + last)) : blocks.begin;
    blocks.unmasked_end = KeyBlocks::unmasked_end_of(args, sequence, QueryTile::position_of(tile.first_row + first), QueryTile::position_of(tile.first_row + last));
//% if split
    keep_blocks(blocks, tile.blocks.begin, tile.blocks.end);
//% end
//% if masked_begin
    if (blocks.unmasked_end < blocks.begin) blocks.unmasked_end = blocks.begin;
    if (blocks.end <= blocks.begin) blocks.begin = blocks.end = tile.blocks.begin;
    unused_first_blocks = blocks.begin - tile.blocks.begin;
//% end
//% if short_sequences
    // Every lane has the same numbers, as ptxas cannot know of a load: see ConsumerTiles. Registers are short in the loops over them.
    blocks.end = uniform(blocks.end);
    blocks.unmasked_end = uniform(blocks.unmasked_end);
//% if masked_begin
    blocks.begin = uniform(blocks.begin);
    blocks.unmasked_begin = uniform(blocks.unmasked_begin);
    unused_first_blocks = blocks.begin - uniform(tile.blocks.begin);
//% end
    unused_blocks = uniform(tile.blocks.end) - blocks.end;
//% else
    unused_blocks = tile.blocks.end - blocks.end;
//% end
//% if visible_blocks
    keep_visible(tile);
//% end
//% if pair_tiles
    head = tile.head;
//% end
//% if loads_pairs
#pragma unroll
    for (i32 half = 0; half < kRowHeads; ++half) heads[half] = tile.head_of(first_row + 8 * half);
//% end
//% if alibi
#pragma unroll
    for (i32 half = 0; half < kRowHeads; ++half) slopes[half] = alibi_slope(args, sequence, tile.head_of(first_row + 8 * half));
//% if alibi_shared
    origin = alibi_diagonal(args, sequence, QueryTile::position_of(tile.first_row));
//% end
//% if alibi_beyond
    find_blocks_beyond(args, QueryTile::position_of(tile.first_row + first), QueryTile::position_of(tile.first_row + last));
//% end
//% end
  }
  __device__ __forceinline__ bool any() const { return blocks.begin < blocks.end; }
//% if visible_blocks
  // Every lane has the same numbers, as ptxas cannot know of a load.
  __device__ __forceinline__ i32 before(i32 block) const { return uniform(visible.before(block)); }
  // Bounds the tile's walk, which passes over blocks that are not visible.
  __device__ __forceinline__ void keep_visible(const QueryTile& tile) {
    visible = tile.visible;
    blocks.end = before(blocks.end < tile.blocks.end ? blocks.end : tile.blocks.end) + 1;
//% if masked_begin
    if (blocks.end <= blocks.begin) blocks.begin = blocks.end = tile.blocks.begin;
    unused_first_blocks = uniform(visible.count(tile.blocks.begin, blocks.begin));
//% end
    unused_blocks = uniform(visible.count(blocks.end, tile.blocks.end));
  }
//% end
//% if pair_tiles
//% if packed
  __device__ __forceinline__ i32 head_of(i32 row) const { return head + static_cast<i32>(static_cast<u32>(row) % kGroup); }
//% else
  __device__ __forceinline__ i32 head_of(i32 /*row*/) const { return head; }
//% end
//% end
//% if alibi_beyond
  __device__ __forceinline__ void find_blocks_beyond(const Arguments& args, i32 top_query, i32 bottom_query) {
    const i32 diagonal = alibi_diagonal(args, sequence, bottom_query);
    beyond_begin = diagonal > 0 ? (diagonal + kBlockKv - 1) / kBlockKv : 0;
    beyond_end = KeyBlocks::whole_end_of(args, sequence, top_query, bottom_query);
    if (beyond_begin < blocks.unmasked_begin) beyond_begin = blocks.unmasked_begin;
    if (beyond_begin < blocks.begin) beyond_begin = blocks.begin;
    if (beyond_end > blocks.end) beyond_end = blocks.end;
    if (beyond_begin >= beyond_end) beyond_begin = beyond_end = blocks.end;
//% if short_sequences
    beyond_begin = uniform(beyond_begin);
    beyond_end = uniform(beyond_end);
//% end
  }
  // The side of the diagonals on which a block's keys lie evenly: that of those beyond as long as some of these are to come or have just been.
  __device__ __forceinline__ float side_of(i32 block) const { return block >= beyond_begin ? -1.0f : 1.0f; }
//% end
};

//% if score_terms
//% if !pair_tiles
// kEdge: as ScoreTerms has it.
template <bool kEdge>
__device__ __forceinline__ void apply_terms(ScoreFragments& s, const Arguments& args, const RowsOfWarpgroup& rows, i32 block) {
  const i32 first_key = block * kBlockKv + static_cast<i32>(lane_index() % 4 * 2);
#pragma unroll
  for (i32 half = 0; half < 2; ++half) {
    const i32 query = QueryTile::position_of(rows.first_row + 8 * half);
    const ScoreTerms terms{${terms_of_row}};
#pragma unroll
    for (i32 n = 0; n < kBlockKv / 8; ++n) {
#pragma unroll
      for (i32 e = 0; e < 2; ++e) {
        float& score = s[4 * n + 2 * half + e];
        score = terms.apply<kEdge>(args, score, 8 * n + e);
      }
    }
  }
}
//% end
//% if alibi_shared
//% if alibi_beyond
// From the blocks beyond the diagonals to the others: what scores have too much they had too little before.
__device__ __forceinline__ void leave_blocks_beyond(const Arguments& args, const RowsOfWarpgroup& rows, Softmax& softmax) {
  if (rows.beyond_begin >= rows.blocks.end) return;
  float by[2];
#pragma unroll
  for (i32 half = 0; half < 2; ++half) {
    const i32 diagonal = alibi_diagonal(args, rows.sequence, QueryTile::position_of(rows.first_row + 8 * half));
    by[half] = 2 * rows.slopes[half % kRowHeads] * static_cast<float>(diagonal - rows.origin);
  }
  softmax.move(by);
}
//% end
// What a row's scores had too much: slope·(diagonal - origin).
__device__ __forceinline__ float alibi_of_diagonal(const Arguments& args, const QueryTile& tile, i32 row) {
  return alibi_slope(args, tile.sequence, tile.head_of(row)) * static_cast<float>(QueryTile::position_of(row) - QueryTile::position_of(tile.first_row));
}
//% end

//% end
// Sets the scores of keys that their row does not attend to to -inf.
__device__ __forceinline__ void mask_scores(ScoreFragments& s, const Arguments& args, const RowsOfWarpgroup& rows, i32 block) {
  const i32 first_key = block * kBlockKv + static_cast<i32>(lane_index() % 4 * 2);
#pragma unroll
  for (i32 half = 0; half < 2; ++half) {
    const HiddenKeys hidden(args, rows.sequence, QueryTile::position_of(rows.first_row + 8 * half), first_key);
#pragma unroll
    for (i32 n = 0; n < kBlockKv / 8; ++n) {
#pragma unroll
      for (i32 e = 0; e < 2; ++e)
        if (hidden.has(8 * n + e)) s[4 * n + 2 * half + e] = negative_infinity();
    }
  }
}

// Where a warpgroup stands in the rings, and its products.
struct Consumer {
  Barriers barriers;
  u32 shared;
  i32 index;  // of the warpgroup among the consumers
  PipelineSlot<kQStages> q;
  PipelineSlot<kStages> k;
  PipelineSlot<kVStages> v;
//% if pair_tiles
  PipelineSlot<kPairStages> pairs;
//% end
  QueryOperand query;
  ProbabilityOperand probabilities;

  __device__ __forceinline__ void wait_q() const { mbarrier_wait_parity(barriers.q_full(q.stage), q.parity); }
  __device__ __forceinline__ void wait_k() const { mbarrier_wait_parity(barriers.k_full(k.stage), k.parity); }
  __device__ __forceinline__ void wait_v() const { mbarrier_wait_parity(barriers.v_full(v.stage), v.parity); }
  __device__ __forceinline__ void release_q() {
    if (lane_index() == 0) mbarrier_arrive(barriers.q_empty(q.stage));
    q.advance();
  }
//% if clustered
  // Each CTA of the cluster sends rows to all of them: a lane for each says that they may come.
  __device__ __forceinline__ void release_k() {
    if (lane_index() < kCluster) mbarrier_arrive_cluster(barriers.k_empty(k.stage), lane_index());
    k.advance();
  }
  __device__ __forceinline__ void release_v() {
    if (lane_index() < kCluster) mbarrier_arrive_cluster(barriers.v_empty(v.stage), lane_index());
    v.advance();
  }
//% else
  __device__ __forceinline__ void release_k() {
    if (lane_index() == 0) mbarrier_arrive(barriers.k_empty(k.stage));
    k.advance();
  }
  __device__ __forceinline__ void release_v() {
    if (lane_index() == 0) mbarrier_arrive(barriers.v_empty(v.stage));
    v.advance();
  }
//% end
//% if pair_tiles
  __device__ __forceinline__ void wait_pairs() const { mbarrier_wait_parity(barriers.pairs_full(pairs.stage), pairs.parity); }
  __device__ __forceinline__ void release_pairs() {
    if (lane_index() == 0) mbarrier_arrive(barriers.pairs_empty(pairs.stage));
    pairs.advance();
  }
//% end

  // Where warpgroups are ordered, each issues its products when its predecessor lets it.
  __device__ __forceinline__ void wait_order() const {
    if (kOrderedWarpgroups) bar_sync_named(kOrder + index, 2 * kWarpgroup);
  }
  __device__ __forceinline__ void pass_order() const {
    if (kOrderedWarpgroups) bar_arrive_named(kOrder + (index + 1 == kConsumers ? 0 : index + 1), 2 * kWarpgroup);
  }

  __device__ __forceinline__ void load_query() { query.load(shared + kQOffset + q.stage * kQTileBytes + index * 64 * kPanelBytes); }
  // S = Q Kᵀ
  __device__ __forceinline__ void issue_qk(ScoreFragments& s) const {
    const u32 keys = tile_place(shared + kKOffset + k.stage * kKvTileBytes, kKvPanelStride);
    wgmma_fence();
    query.multiply<false>(s, 0, matrix_descriptor(keys));
#pragma unroll
    for (i32 step = 1; step < kDimSteps; ++step) query.multiply<true>(s, step, matrix_descriptor(keys + column_step(step, kKvPanelStride)));
    wgmma_commit_group();
  }
  // P in 16 bits, for the next product with V.
//% if dropout
  __device__ __forceinline__ u32 dropout_place() const { return shared + kDropoutOffset + 16 * (4 * index + warp_index() % 4); }
  __device__ __forceinline__ void begin_dropout(const Arguments& args, const QueryTile& tile) const { HeadDropout(args, tile.sequence.batch, tile.head).put(dropout_place()); }
  // first_row: of the thread.
  __device__ __forceinline__ void put_probabilities(const ScoreFragments& s, const Arguments& args, i32 first_row, i32 block) {
    probabilities.put(s, shared, index, args, QueryDropout(HeadDropout(dropout_place()), first_row - static_cast<i32>(lane_index() / 4)), block);
  }
//% else
  __device__ __forceinline__ void put_probabilities(const ScoreFragments& s) { probabilities.put(s, shared, index); }
//% end
  // O += P V
  __device__ __forceinline__ void issue_pv(OutputFragments& o) const {
    const u32 values = tile_place(shared + kVOffset + v.stage * kKvTileBytes, kKvPanelStride);
    wgmma_fence();
#pragma unroll
    for (i32 step = 0; step < kKeySteps; ++step) probabilities.multiply(o, step, matrix_descriptor(values + row_step(step)));
    wgmma_commit_group();
  }
};

// Passes over blocks that other warpgroups need and this one does not: waits for them only to release them, and passes the order on. A buffer is
// released only after all lanes have seen it full; bar_warp_sync says so where no product holds the warp together.
__device__ __forceinline__ void skip_key(Consumer& consumer) {
  consumer.wait_k();
//% if pair_tiles
  consumer.wait_pairs();
//% end
  bar_warp_sync();
  consumer.release_k();
//% if pair_tiles
  consumer.release_pairs();
//% end
  consumer.wait_order();
  consumer.pass_order();
}
__device__ __forceinline__ void skip_value(Consumer& consumer) {
  consumer.wait_v();
  bar_warp_sync();
  consumer.release_v();
}
__device__ __forceinline__ void skip_keys(Consumer& consumer, i32 count) {
  for (i32 i = 0; i < count; ++i) skip_key(consumer);
}
__device__ __forceinline__ void skip_values(Consumer& consumer, i32 count) {
  for (i32 i = 0; i < count; ++i) skip_value(consumer);
}
__device__ __forceinline__ void skip_blocks(Consumer& consumer, i32 count) {
  for (i32 i = 0; i < count; ++i) {
    skip_key(consumer);
    skip_value(consumer);
  }
}

__device__ __forceinline__ void clear(OutputFragments& o) {
#pragma unroll
  for (i32 i = 0; i < kHeadDimV / 2; ++i) o[i] = 0;
}
