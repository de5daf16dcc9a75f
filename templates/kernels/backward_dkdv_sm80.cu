// dK and dV of one tile of keys of one ${tile_head}, on mma.sync (compute capability 8.0 and newer). Keys are the rows of all products
// but dQ's:
//
//   ${loops}:
//     Sᵀ = K Qᵀ        Pᵀ = exp2(c Sᵀ - LSE·log2(e)), masked     dV = dV + Pᵀ dO
//     dPᵀ = V dOᵀ      dSᵀ = Pᵀ ∘ (dPᵀ - delta)                  dK = dK + dSᵀ Q
//     ${query_gradient_formula}
//   ${key_gradient_formula},   c = ${unit}·log2(e)
//
//% if capped
// Scores are capped: Sᵀ = tanh(scale / softcap·K Qᵀ), dSᵀ = Pᵀ ∘ (1 - Sᵀ²) ∘ (dPᵀ - delta).
//
//% end
//% if exponent_terms
// Pᵀ = exp2(c Sᵀ + log2(e)·(${gained_words} - LSE))${added_note}.
//
//% end
//% if dropout
// What dropout keeps of P counts in dV, divided by the share of it; dP where it is kept, likewise, in dS.
//
//% end
//% if short_sequences
// A sequence has as many rows as `seqused_q` and `seqused_kv` say, of those that ${sequence_rows}.
//
//% end
// A warp owns kWarpRows keys. kQueryWarps warps own the same: each computes Sᵀ and dPᵀ of kWarpQueries queries of a block, and kPartChunks chunks of
// the columns of dK and dV from all of them.
//
// shared memory, bytes:
//% for shared_buffers
//   ${shared_buffers.offset}  ${shared_buffers.picture}
//% end

//% include primitives/mma_sync

struct Arguments {
//% for argument_fields
  ${argument_fields.type} ${argument_fields.name};
//% end
};
constexpr u32 kArgumentBytes = ${argument_bytes};

constexpr i32 kHeadDimQk = ${head_dim_qk}, kHeadDimV = ${head_dim_v};  // elements of a row of Q and K, and of V and O
constexpr i32 kElementBytes = ${element_bytes};
constexpr i32 kBlockQ = ${block_q}, kBlockKv = ${block_kv}, kWarps = ${warps}, kQueryWarps = ${query_warps}, kStages = ${stages};
constexpr i32 kCtasPerSm = ${ctas_per_sm};
//% if query_parts
constexpr i32 kQueryParts = ${query_part_count};  // of the queries of a head
//% end

constexpr i32 kThreads = kWarps * kWarpSize;
constexpr i32 kWarpRows = kBlockKv / (kWarps / kQueryWarps), kWarpQueries = kBlockQ / kQueryWarps;
constexpr i32 kRowTiles = kWarpRows / 16;        // m16 tiles of a warp
constexpr i32 kKeyTiles = kWarpQueries / 8;      // n8 tiles of Sᵀ
constexpr i32 kChunks = kHeadDimQk / 8;            // 16-byte chunks of a row
constexpr i32 kRowLanes = ${row_lanes};          // threads that copy a row together
constexpr i32 kDimSteps = kHeadDimQk / 16;         // k16 steps of a product over the head dim
constexpr bool kDimTail = kHeadDimQk % 16 != 0;    // and a k8 step
constexpr u32 kRowBytes = ${row_bytes}, kSwizzleMask = ${swizzle_mask}, kSwizzleShift = ${swizzle_shift};
constexpr i32 kPartChunks = (kChunks + kQueryWarps - 1) / kQueryWarps;  // of dK and dV that a warp computes
//% for shared_offsets
constexpr u32 ${shared_offsets.name} = ${shared_offsets.offset};
//% end
constexpr u32 kStreamedTileBytes = ${streamed_tile_bytes};
//% if scores_shared
constexpr u32 kScoreSwizzleMask = ${score_swizzle_mask}, kScoreSwizzleShift = ${score_swizzle_shift};
//% end
//% if query_sums
constexpr i32 kDqRows = ${dq_rows}, kDqColumnParts = ${dq_column_parts};  // of dQ's block that a warp computes
constexpr i32 kDqChunks = (kChunks + kDqColumnParts - 1) / kDqColumnParts;
static_assert(kBlockQ / kDqRows * kDqColumnParts == kWarps);
//% end
static_assert(kBlockKv % (16 * (kWarps / kQueryWarps)) == 0 && kBlockQ % (16 * kQueryWarps) == 0 && kHeadDimQk % 8 == 0);
static_assert(kHeadDimQk == kHeadDimV);  // rows of all tiles lie alike
static_assert(kRowBytes == kElementBytes * kHeadDimQk && kStreamedTileBytes == kBlockQ * kRowBytes);

using ScoreFragments = float[kRowTiles][kKeyTiles][4];

//% include mma_sync/swizzle_backward
//% include tile/${chunk_access}
//% include tile/copy_tile
//% include mma_sync/mma_operands
//% include attention/sequence_${sequence}
//% include attention/mask_${mask}
//% include attention/query_blocks
//% if query_parts
//% include attention/query_part
//% end
//% include attention/score_${score}
//% if dropout
//% include attention/dropout_of_keys
//% end

//% include mma_sync/tile_pair_stream
using StreamedRows = TilePairStream<kBlockQ>;  // of Q and dO
//% include mma_sync/query_statistics
//% include mma_sync/lse_delta_stream
//% include mma_sync/${ring}
//% include mma_sync/load_query
//% include mma_sync/query_shared
//% include mma_sync/gemm_qk
//% include mma_sync/gradient_columns

struct KeyGradients {
  GradientFragments dk, dv;
};

// The part of a tile that a warp computes: its first key, its first query in each block, and its columns of dK and dV.
struct WarpPart {
  i32 row, query, first_chunk, first_stored;

  __device__ __forceinline__ WarpPart(i32 warp) {
    const i32 part = warp % kQueryWarps;
    row = warp / kQueryWarps * kWarpRows;
    query = part * kWarpQueries;
    // The last part begins early enough to be as wide as the others. The part before it stores the columns that both have.
    first_stored = part * kPartChunks;
    first_chunk = first_stored < kChunks - kPartChunks ? first_stored : kChunks - kPartChunks;
  }
};

//% if scores_shared
//% include mma_sync/score_tiles
//% end
//% if sums
//% include mma_sync/sums_${sums_order}
//% include mma_sync/sums_place
//% end
//% include mma_sync/dq_accumulation_${dq}
//% include mma_sync/dkdv_${scores}
//% include schedule/key_tiles_per_${key_tile_head}
//% include schedule/tile_id_${tile_id}
// Maps the number of a CTA to the tile that it takes, as KeyTile counts tiles. Computed once, since registers are short later.
//% if packed_sequences
//% include schedule/key_tile_record

//% end
//% include schedule/key_tile_order_${key_tile_order}

//% include schedule/key_tile

// Offsets are in elements.
__device__ __forceinline__ const char* row_pointer(const void* tensor, i64 sequence_offset, i64 head_offset, i64 row_offset) {
  return static_cast<const char*>(tensor) + kElementBytes * (sequence_offset + head_offset + row_offset);
}

// Whether blocks of queries are masked where keys do not fill their tile. Keys beyond the last would have a P that is not 0, or NaN.
//% if short_sequences
constexpr bool kMasksRagged = true;  // they have rows of dK and dV, which are 0
//% else
constexpr bool kMasksRagged = DqAccumulation::kAdded;  // their dS must not reach dQ
//% end

//% if exponent_terms
//% include attention/exponent_terms
//% end
// query, in what follows, is the warp's first one in the block.
//% if score_slope
// Turns Sᵀ in `p` into Pᵀ, and dPᵀ in `ds` into dSᵀ: at once, since both come from the changed score.
__device__ __forceinline__ void exponentiate_and_differentiate(ScoreFragments& p, ScoreFragments& ds, const ScoreFunction& score, const Arguments& args,
                                                               i32 query, u32 shared, i32 stage${terms_parameter}) {
#pragma unroll
  for (i32 n = 0; n < kKeyTiles; ++n) {
    QueryStatistics two[2];
    load_statistics(two, shared, stage, query + 8 * n + static_cast<i32>(lane_index() % 4 * 2));
#pragma unroll
    for (i32 i = 0; i < 4 * kRowTiles; ++i) {
      float &probability = p[i / 4][n][i % 4], &gradient = ds[i / 4][n][i % 4];
      const float changed = probability;
      probability = two[i % 2].probability(changed, args.softmax_scale_log2${and_gain});
      gradient = score.slope(probability, changed) * (gradient - two[i % 2].delta);
    }
  }
}
//% else
// Turns Sᵀ into Pᵀ.
__device__ __forceinline__ void exponentiate(ScoreFragments& p, const Arguments& args, i32 query, u32 shared, i32 stage${terms_parameter}) {
#pragma unroll
  for (i32 n = 0; n < kKeyTiles; ++n) {
    QueryStatistics two[2];
    load_statistics(two, shared, stage, query + 8 * n + static_cast<i32>(lane_index() % 4 * 2));
#pragma unroll
    for (i32 i = 0; i < 4 * kRowTiles; ++i) {
      float& probability = p[i / 4][n][i % 4];
      probability = two[i % 2].probability(probability, args.softmax_scale_log2${and_gain});
    }
  }
}

// Turns dPᵀ into dSᵀ.
__device__ __forceinline__ void differentiate(ScoreFragments& ds, const ScoreFragments& p, i32 query, u32 shared, i32 stage) {
#pragma unroll
  for (i32 n = 0; n < kKeyTiles; ++n) {
    QueryStatistics two[2];
    load_statistics(two, shared, stage, query + 8 * n + static_cast<i32>(lane_index() % 4 * 2));
#pragma unroll
    for (i32 i = 0; i < 4 * kRowTiles; ++i) {
      float& gradient = ds[i / 4][n][i % 4];
      gradient = p[i / 4][n][i % 4] * (gradient - two[i % 2].delta);
    }
  }
}
//% end

//% if score_slope
// Sets Pᵀ, or dSᵀ, to 0 where a query does not attend to a key. first_query and first_key are the warp's first ones in the sequence.
//% else
// Sets Pᵀ to 0 where a query does not attend to a key. first_query and first_key are the warp's first ones in the sequence.
//% end
__device__ __forceinline__ void mask_probabilities(ScoreFragments& p, const Arguments& args, const Sequence& sequence, i32 first_query,
                                                   i32 first_key) {
#pragma unroll
  for (i32 n = 0; n < kKeyTiles; ++n) {
#pragma unroll
    for (i32 e = 0; e < 2; ++e) {
      const i32 query = first_query + 8 * n + static_cast<i32>(lane_index() % 4 * 2) + e;
      HiddenKeys hidden(args, sequence, query, first_key);
      hidden.move(static_cast<i32>(lane_index() / 4));
#pragma unroll
      for (i32 i = 0; i < 2 * kRowTiles; ++i)
        if (hidden.has(8 * i)) p[i / 2][n][i % 2 * 2 + e] = 0;
    }
  }
}

//% if dropout
// What dropout keeps of a block's scores.
struct KeptScores {
  KeptElements sixteens[kRowTiles][kKeyTiles / 2];

  __device__ __forceinline__ KeptScores(const Arguments& args, const KeyDropout (&dropout)[kRowTiles], i32 query) {
#pragma unroll
    for (i32 i = 0; i < kRowTiles * (kKeyTiles / 2); ++i) sixteens[i / (kKeyTiles / 2)][i % (kKeyTiles / 2)] = dropout[i / (kKeyTiles / 2)].of_queries(args, query / 16 + i % (kKeyTiles / 2));
  }
  // What is not kept becomes 0.
  __device__ __forceinline__ void keep(ScoreFragments& x) const {
#pragma unroll
    for (i32 t = 0; t < kRowTiles; ++t) {
#pragma unroll
      for (i32 n = 0; n < kKeyTiles; ++n) {
#pragma unroll
        for (i32 i = 0; i < 4; ++i) x[t][n][i] = sixteens[t][n / 2].has(i / 2, n % 2, i % 2) ? x[t][n][i] : 0.0f;
      }
    }
  }
};

//% end
//% if !score_slope
// The exponentials come before the product dPᵀ, so that they may run beside it; the mask, a branch, comes after it.
//% end
__device__ __forceinline__ void query_step(const Arguments& args, bool masked, i32 block, const KeyTile& tile, const WarpPart& part, TilePairRing& ring,
                                           const QueryFragments& k, const QueryFragments& v, KeyGradients& acc, DqAccumulation& dq, u32 shared${head_parameters}) {
  ScoreFragments acc_p = {}, acc_ds = {};
  ScoreFunction score(args);
  ring.acquire();
  dq.pass_ticket();
  gemm_qk(acc_p, k, ring.first_tile() + part.query * kRowBytes);    // Sᵀ = K Qᵀ
  score.modify(acc_p);
//% if exponent_terms
  const ExponentTerms terms(args, tile.sequence, head, ${slope_of_terms}block * kBlockQ + part.query + static_cast<i32>(lane_index() % 4 * 2), tile.first_key + part.row + static_cast<i32>(lane_index() / 4));
//% end
//% if score_slope
  gemm_qk(acc_ds, v, ring.second_tile() + part.query * kRowBytes);  // dPᵀ = V dOᵀ
//% if dropout
  const KeptScores kept(args, dropout, block * kBlockQ + part.query);
  kept.keep(acc_ds);
//% end
  exponentiate_and_differentiate(acc_p, acc_ds, score, args, part.query, shared, ring.stage${and_terms});
  if (masked) {
    mask_probabilities(acc_p, args, tile.sequence, block * kBlockQ + part.query, tile.first_key + part.row);
    mask_probabilities(acc_ds, args, tile.sequence, block * kBlockQ + part.query, tile.first_key + part.row);
  }
//% else
  exponentiate(acc_p, args, part.query, shared, ring.stage${and_terms});
  gemm_qk(acc_ds, v, ring.second_tile() + part.query * kRowBytes);  // dPᵀ = V dOᵀ
//% if dropout
  const KeptScores kept(args, dropout, block * kBlockQ + part.query);
  kept.keep(acc_ds);
//% end
  if (masked) mask_probabilities(acc_p, args, tile.sequence, block * kBlockQ + part.query, tile.first_key + part.row);
  differentiate(acc_ds, acc_p, part.query, shared, ring.stage);
//% end
//% if dropout
  kept.keep(acc_p);
//% end
  add_gradients(acc, dq, acc_p, acc_ds, part, ring, block, shared);
  ring.release();
}

__device__ __forceinline__ void load_keys(const Arguments& args, const KeyTile& tile, u32 shared) {
  const i64 row = tile.first_key;
  const i32 head = TileHeads::of_keys(args, tile.head);
  const char* k = row_pointer(args.k, tile.sequence.key_offset(args.k_stride_batch, args.k_stride_row), head * args.k_stride_head, row * args.k_stride_row);
  const char* v = row_pointer(args.v, tile.sequence.key_offset(args.v_stride_batch, args.v_stride_row), head * args.v_stride_head, row * args.v_stride_row);
  TilePairStream<kBlockKv>(k, kElementBytes * args.k_stride_row, v, kElementBytes * args.v_stride_row, tile.keys).load_next(shared + kKOffset, shared + kVOffset);
  cp_async_commit_group();
}

//% include mma_sync/dkdv_epilogue_${dkdv_epilogue}

extern "C" __global__ void __launch_bounds__(kThreads, kCtasPerSm) ${entry}(const __grid_constant__ Arguments args) {
  const u32 shared = shared_base();
  const i32 index = tile_in_order(args, take_tile_id(args, shared));
//% if packed_sequences
  if (index < 0) return;
//% end
  const i32 warp = warp_index();
  const WarpPart part(warp);
  load_keys(args, KeyTile(args, index), shared);

  const QueryFragments k(shared + kKOffset, part.row), v(shared + kVOffset, part.row);
  KeyGradients acc = {};
  for (i32 member = 0; member < TileHeads::walked(args); ++member) {
    // What belongs to the tile is computed again for each head, since registers are short in the steps.
    const KeyTile tile(args, opaque_i32(index));
//% if query_parts
    QueryBlocks<kMasksRagged> blocks(args, tile.sequence, tile.first_key, tile.keys);
    keep_part(blocks, tile.part);
//% else
    const QueryBlocks<kMasksRagged> blocks(args, tile.sequence, tile.first_key, tile.keys);
//% end
    const i32 head = TileHeads::of_queries(args, tile.head, member);
    const i64 first_row = static_cast<i64>(blocks.begin) * kBlockQ, row_head = static_cast<i64>(workspace_batch(tile.sequence)) * args.heads_q + head;
    const char* q =
        row_pointer(args.q, tile.sequence.query_offset(args.q_stride_batch, args.q_stride_row), head * args.q_stride_head, first_row * args.q_stride_row);
    const char* d_o =
        row_pointer(args.d_o, tile.sequence.query_offset(args.d_o_stride_batch, args.d_o_stride_row), head * args.d_o_stride_head, first_row * args.d_o_stride_row);
    TilePairRing ring{StreamedRows(q, kElementBytes * args.q_stride_row, d_o, kElementBytes * args.d_o_stride_row, query_count(args, tile.sequence) - static_cast<i32>(first_row)),
                      LseDeltaStream(args, (row_head * blocks.all + first_block_of_queries<kBlockQ>(tile.sequence)) * kBlockQ + first_row), blocks.end - blocks.begin, shared};
    if (member > 0) bar_sync();  // all have read the last block of the head before
    ring.prefetch();
//% if alibi
    const float slope = alibi_slope(args, tile.sequence, head);
//% end
//% if dropout
    const HeadDropout of_head(args, tile.sequence.batch, head);
    KeyDropout dropout[kRowTiles];
#pragma unroll
    for (i32 t = 0; t < kRowTiles; ++t) dropout[t] = KeyDropout(of_head, tile.first_key + part.row + 16 * t);
//% end
    DqAccumulation dq(args, tile.sequence, row_head, tile.tile, warp, shared);
    for (i32 block = blocks.begin; block < blocks.end; ++block) {
//% if masked_begin
      const bool masked = block < blocks.unmasked_begin || block >= blocks.unmasked_end;
//% else
      const bool masked = block < blocks.unmasked_begin;
//% end
      query_step(args, masked, block, tile, part, ring, k, v, acc, dq, shared${and_head});
    }
    dq.finish();
  }

  cp_async_wait_group<0>();
  bar_sync();
  finish_key_gradients(args, KeyTile(args, opaque_i32(index)), WarpPart(opaque_i32(warp)), acc);
}
//% include primitives/entry/${target}
