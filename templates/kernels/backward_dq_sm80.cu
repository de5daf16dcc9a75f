// dQ of one tile of queries of one head, on mma.sync (compute capability 8.0 and newer):
//
//   for each block of keys:   S = Q Kᵀ           P = exp2(c S - LSE·log2(e)), masked
//                             dP = dO Vᵀ         dS = P ∘ (dP - delta)
//                             dQ = dQ + dS K
//   dQ = scale·dQ,   c = ${unit}·log2(e)
//
//% if capped
// Scores are capped: S = tanh(scale / softcap·Q Kᵀ), dS = P ∘ (1 - S²) ∘ (dP - delta).
//
//% end
//% if exponent_terms
// P = exp2(c S + log2(e)·(${gained_words} - LSE))${added_note}.
//
//% end
//% if dropout
// What dropout keeps of P counts, divided by the share of it, in dS as dP.
//
//% end
//% if short_sequences
// A sequence has as many rows as `seqused_q` and `seqused_kv` say, of those that ${sequence_rows}.
//
//% end
// Each warp owns 16 queries and all keys of a block: S, dP, dS and dQ stay in its registers.
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
constexpr i32 kBlockQ = ${block_q}, kBlockKv = ${block_kv}, kThreads = ${threads}, kStages = ${stages};
constexpr i32 kCtasPerSm = ${ctas_per_sm};

constexpr i32 kWarpRows = 16, kRowTiles = 1;     // queries of a warp, in m16 tiles
constexpr i32 kKeyTiles = kBlockKv / 8;          // n8 tiles of S
constexpr i32 kChunks = kHeadDimQk / 8;            // 16-byte chunks of a row
constexpr i32 kRowLanes = ${row_lanes};          // threads that copy a row together
constexpr i32 kDimSteps = kHeadDimQk / 16;         // k16 steps of a product over the head dim
constexpr bool kDimTail = kHeadDimQk % 16 != 0;    // and a k8 step
constexpr u32 kRowBytes = ${row_bytes}, kSwizzleMask = ${swizzle_mask}, kSwizzleShift = ${swizzle_shift};
constexpr i32 kPartChunks = kChunks;             // of dQ that a warp computes: all
//% for shared_offsets
constexpr u32 ${shared_offsets.name} = ${shared_offsets.offset};
//% end
constexpr u32 kStreamedTileBytes = ${streamed_tile_bytes};
static_assert(kThreads * kWarpRows == kBlockQ * kWarpSize && kBlockKv % 16 == 0 && kHeadDimQk % 8 == 0);
static_assert(kHeadDimQk == kHeadDimV);  // rows of all tiles lie alike
static_assert(kRowBytes == kElementBytes * kHeadDimQk && kStreamedTileBytes == kBlockKv * kRowBytes);

using ScoreFragments = float[kRowTiles][kKeyTiles][4];

//% include mma_sync/swizzle_backward
//% include tile/${chunk_access}
//% include tile/copy_tile
//% include mma_sync/mma_operands
//% include attention/sequence_${sequence}
//% include attention/mask_${mask}
//% include attention/key_blocks
//% if exponent_terms
//% include attention/exponent_terms
//% end
//% include attention/score_${score}
//% if dropout
//% include attention/dropout_of_queries
//% end

//% include mma_sync/tile_pair_stream
using StreamedRows = TilePairStream<kBlockKv>;  // of K and V
// Each thread keeps the statistics of its queries in registers: nothing is streamed.
struct LseDeltaStream {
  __device__ __forceinline__ void load_next(u32 /*shared*/, i32 /*into*/) {}
};
//% include mma_sync/${ring}
//% include mma_sync/load_query
//% include mma_sync/query_shared
//% include mma_sync/gemm_qk
//% include mma_sync/gradient_columns
//% include mma_sync/query_statistics

// Offsets are in elements.
__device__ __forceinline__ const char* row_pointer(const void* tensor, i64 sequence_offset, i64 head_offset, i64 row_offset) {
  return static_cast<const char*>(tensor) + kElementBytes * (sequence_offset + head_offset + row_offset);
}

// Turns dP in `ds` into dS. first_row is the warp's first query in the sequence.
template <bool kMasked>
__device__ __forceinline__ void differentiate(ScoreFragments& s, ScoreFragments& ds, const ScoreFunction& score, const Arguments& args,
                                              const Sequence& sequence, const QueryStatistics (&queries)[2], i32 first_row, i32 block${head_parameters}) {
  const i32 first_key = block * kBlockKv + lane_index() % 4 * 2;
//% if dropout
  KeptElements kept[kKeyTiles / 2];
#pragma unroll
  for (i32 k = 0; k < kKeyTiles / 2; ++k) kept[k] = dropout.of_keys(args, block * (kBlockKv / 16) + k);
//% end
#pragma unroll
  for (i32 half = 0; half < 2; ++half) {
    const HiddenKeys hidden(args, sequence, first_row + 8 * half + lane_index() / 4, first_key);
//% if exponent_terms
    const ExponentTerms terms(args, sequence, head, ${slope_of_terms}first_row + 8 * half + static_cast<i32>(lane_index() / 4), first_key);
//% end
#pragma unroll
    for (i32 n = 0; n < kKeyTiles; ++n) {
#pragma unroll
      for (i32 e = 0; e < 2; ++e) {
        const float changed = s[0][n][2 * half + e], p = score.slope(queries[half].probability(changed, args.softmax_scale_log2${and_gain}), changed);
        const bool visible = !kMasked || !hidden.has(8 * n + e);
//% if dropout
        const float dp = kept[n / 2].has(n % 2, half, e) ? ds[0][n][2 * half + e] * args.dropout_scale : 0.0f;
        ds[0][n][2 * half + e] = visible ? p * (dp - queries[half].delta) : 0.0f;
//% else
        ds[0][n][2 * half + e] = visible ? p * (ds[0][n][2 * half + e] - queries[half].delta) : 0.0f;
//% end
      }
    }
  }
}

template <bool kMasked>
__device__ __forceinline__ void kv_step(const Arguments& args, const Sequence& sequence, i32 block, i32 first_row, TilePairRing& ring,
                                        const QueryFragments& q, const QueryFragments& d_o, const QueryStatistics (&queries)[2], GradientFragments& acc_dq${head_parameters}) {
  ScoreFragments acc_s = {}, acc_ds = {};
  ScoreFunction score(args);
  ring.acquire();
  gemm_qk(acc_s, q, ring.first_tile());      // S = Q Kᵀ
  score.modify(acc_s);
  gemm_qk(acc_ds, d_o, ring.second_tile());  // dP = dO Vᵀ
  differentiate<kMasked>(acc_s, acc_ds, score, args, sequence, queries, first_row, block${and_head});
  gemm_columns<kBlockKv / 16>(acc_dq, PackedScores{acc_ds}, ring.first_tile(), 0);  // dQ = dQ + dS K
  ring.release();
}

extern "C" __global__ void __launch_bounds__(kThreads, kCtasPerSm) ${entry}(const __grid_constant__ Arguments args) {
  const i32 tile = static_cast<i32>(block_index() % static_cast<u32>(args.query_tiles)),
            batch_head = static_cast<i32>(block_index() / static_cast<u32>(args.query_tiles));
//% if packed_sequences
  const TileOfSequence found(args.cu_seqlens_q, args.batch, args.seq_q, tile, kBlockQ);
  const Sequence sequence(args, found.batch);
  const i32 head = batch_head, head_kv = head / args.group_size, tile_row = found.tile * kBlockQ;
//% else
  const Sequence sequence(args, batch_head / args.heads_q);
  const i32 head = batch_head - sequence.batch * args.heads_q, head_kv = head / args.group_size, tile_row = tile * kBlockQ;
//% end
  const i32 rows = query_count(args, sequence) - tile_row < kBlockQ ? query_count(args, sequence) - tile_row : kBlockQ;
  const i32 warp_row = warp_index() * kWarpRows, first_row = tile_row + warp_row;
  const u32 shared = shared_base();

  const KeyBlocks blocks(args, sequence, tile_row, tile_row + rows - 1);

  TilePairStream<kBlockQ>(row_pointer(args.q, sequence.query_offset(args.q_stride_batch, args.q_stride_row), head * args.q_stride_head, tile_row * args.q_stride_row),
                          kElementBytes * args.q_stride_row,
                          row_pointer(args.d_o, sequence.query_offset(args.d_o_stride_batch, args.d_o_stride_row), head * args.d_o_stride_head, tile_row * args.d_o_stride_row),
                          kElementBytes * args.d_o_stride_row, rows)
      .load_next(shared + kQOffset, shared + kDoOffset);
  cp_async_commit_group();
  const i64 first_key = static_cast<i64>(blocks.begin) * kBlockKv;
  const char* k = row_pointer(args.k, sequence.key_offset(args.k_stride_batch, args.k_stride_row), head_kv * args.k_stride_head, first_key * args.k_stride_row);
  const char* v = row_pointer(args.v, sequence.key_offset(args.v_stride_batch, args.v_stride_row), head_kv * args.v_stride_head, first_key * args.v_stride_row);
  TilePairRing ring{StreamedRows(k, kElementBytes * args.k_stride_row, v, kElementBytes * args.v_stride_row, key_count(args, sequence) - static_cast<i32>(first_key)), LseDeltaStream{},
                    blocks.end - blocks.begin, shared};
  ring.prefetch();

  const QueryFragments q(shared + kQOffset, warp_row), d_o(shared + kDoOffset, warp_row);
  const float* statistics = args.statistics + 2 * (static_cast<i64>(batch_head) * args.query_tiles * kBlockQ + first_block_of_queries<kBlockQ>(sequence) * kBlockQ + first_row + lane_index() / 4);
  const QueryStatistics queries[2] = {{ld_global_f32(statistics), ld_global_f32(statistics + 1)${per_share}},
                                      {ld_global_f32(statistics + 16), ld_global_f32(statistics + 17)${per_share}}};
  GradientFragments acc_dq = {};
//% if alibi
  const float slope = alibi_slope(args, sequence, head);
//% end
//% if dropout
  const QueryDropout dropout(HeadDropout(args, sequence.batch, head), first_row);
//% end
  i32 block = blocks.begin;
//% if masked_begin
  for (; block < blocks.unmasked_begin; ++block) kv_step<true>(args, sequence, block, first_row, ring, q, d_o, queries, acc_dq${and_head});
//% end
  for (; block < blocks.unmasked_end; ++block) kv_step<false>(args, sequence, block, first_row, ring, q, d_o, queries, acc_dq${and_head});
  for (; block < blocks.end; ++block) kv_step<true>(args, sequence, block, first_row, ring, q, d_o, queries, acc_dq${and_head});

  // dQ leaves through the warp's own rows of Q's tile, so that global stores are whole chunks of a row.
  cp_async_wait_group<0>();
  bar_sync();
  put_gradient(shared + kQOffset, warp_row, 0, 0, args.softmax_scale, acc_dq);
  bar_warp_sync();
  const i64 row_bytes = kElementBytes * args.d_q_stride_row;
  char* d_q = const_cast<char*>(row_pointer(args.d_q, sequence.query_offset(args.d_q_stride_batch, args.d_q_stride_row), head * args.d_q_stride_head, 0));
//% if short_sequences
  const i32 stored = stored_queries(args, sequence) - tile_row;  // rows of the tile, also behind the last query
//% else
  const i32 stored = rows;
//% end
  store_tile<kWarpRows, false, kWarpSize>(d_q + first_row * row_bytes, shared + kQOffset + warp_row * kRowBytes, row_bytes, stored - warp_row,
                                          lane_index());
}
//% include primitives/entry/${target}
