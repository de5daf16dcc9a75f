// The gradient of a bias, on mma.sync (compute capability 8.0 and newer):
//
//   dbias = Σ P ∘ (dP - delta)     over the batch entries, heads and queries along which the bias repeats
//
//   P = exp2(c S + log2(e)·(${gained_words} - LSE)), masked,   S = Q Kᵀ,   dP = dO Vᵀ,   c = ${unit}·log2(e)${added_note}
//
//% if capped
// Scores are capped: S = tanh(scale / softcap·Q Kᵀ). The bias is added behind that.
//
//% end
//% if dropout
// dP counts where dropout keeps P, divided by the share of what it keeps.
//
//% end
// A CTA has a tile of kTile queries and kTile keys of one plane of the bias; where that repeats along the queries, it has kTile keys of all of them. It walks
// over the tiles of S that share these elements, in a fixed order, and sums in registers. Each warp owns 16 queries and all keys of a tile.
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
constexpr i32 kElementBytes = ${element_bytes}, kBiasBytes = ${bias_bytes};
constexpr i32 kTile = ${rows_per_tile}, kBlockQ = kTile, kBlockKv = kTile, kThreads = ${threads}, kStages = ${stages};
constexpr i32 kRows = ${statistics_rows};          // queries whose statistics lie together

constexpr i32 kWarpRows = 16, kRowTiles = 1, kWarps = kTile / kWarpRows;  // queries of a warp, in m16 tiles
constexpr i32 kKeyTiles = kTile / 8;             // n8 tiles of S
constexpr i32 kChunks = kHeadDimQk / 8;          // 16-byte chunks of a row
constexpr i32 kRowLanes = ${row_lanes};          // threads that copy a row together
constexpr i32 kDimSteps = kHeadDimQk / 16;       // k16 steps of a product over the head dim
constexpr bool kDimTail = kHeadDimQk % 16 != 0;  // and a k8 step
constexpr u32 kRowBytes = ${row_bytes}, kSwizzleMask = ${swizzle_mask}, kSwizzleShift = ${swizzle_shift};
//% for shared_offsets
constexpr u32 ${shared_offsets.name} = ${shared_offsets.offset};
//% end
constexpr u32 kTileBytes = kTile * kRowBytes, kFloat = sizeof(float);
static_assert(kThreads == kWarps * kWarpSize && kTile % 16 == 0 && kHeadDimQk % 8 == 0 && kHeadDimQk == kHeadDimV);

using ScoreFragments = float[kRowTiles][kKeyTiles][4];

//% include mma_sync/swizzle_backward
//% include tile/${chunk_access}
//% include mma_sync/mma_operands
//% include attention/sequence_${sequence}
//% include attention/mask_${mask}
//% include attention/key_blocks
//% include schedule/bias_tiles
//% include attention/exponent_terms
//% include attention/score_${score}
//% if dropout
//% include attention/dropout_of_queries
//% end
//% include mma_sync/tile_pair_stream
//% include mma_sync/load_query
//% include mma_sync/query_shared
//% include mma_sync/gemm_qk
//% include mma_sync/query_statistics
//% include tile/delta_${statistics_order}
//% include tile/lse_${statistics_order}
//% include tile/statistics_of_query

// Offsets are in elements.
__device__ __forceinline__ const char* row_pointer(const void* tensor, i64 sequence_offset, i64 head_offset, i64 row_offset) {
  return static_cast<const char*>(tensor) + kElementBytes * (sequence_offset + head_offset + row_offset);
}

__device__ __forceinline__ void load_tiles(const Arguments& args, const ScoreTiles& at, u32 shared, i32 stage) {
  const Sequence sequence(args, at.batch);
  const i32 head_kv = at.head / args.group_size, first_query = at.row_tile * kTile, first_key = at.key_tile * kTile;
  const i64 query = first_query, key = first_key;
  TilePairStream<kTile>(row_pointer(args.q, sequence.query_offset(args.q_stride_batch, args.q_stride_row), at.head * args.q_stride_head, query * args.q_stride_row),
                        kElementBytes * args.q_stride_row,
                        row_pointer(args.d_o, sequence.query_offset(args.d_o_stride_batch, args.d_o_stride_row), at.head * args.d_o_stride_head, query * args.d_o_stride_row),
                        kElementBytes * args.d_o_stride_row, query_count(args, sequence) - first_query)
      .load_next(shared + kQOffset + stage * kTileBytes, shared + kDoOffset + stage * kTileBytes);
  TilePairStream<kTile>(row_pointer(args.k, sequence.key_offset(args.k_stride_batch, args.k_stride_row), head_kv * args.k_stride_head, key * args.k_stride_row),
                        kElementBytes * args.k_stride_row,
                        row_pointer(args.v, sequence.key_offset(args.v_stride_batch, args.v_stride_row), head_kv * args.v_stride_head, key * args.v_stride_row),
                        kElementBytes * args.v_stride_row, key_count(args, sequence) - first_key)
      .load_next(shared + kKOffset + stage * kTileBytes, shared + kVOffset + stage * kTileBytes);
}

// Adds P ∘ (dP - delta) of a tile.
__device__ __forceinline__ void add_tile(const Arguments& args, const ScoreTiles& at, u32 shared, i32 stage, ScoreFragments& sums) {
  const Sequence sequence(args, at.batch);
  const i32 warp_row = static_cast<i32>(warp_index()) * kWarpRows, lane = static_cast<i32>(lane_index());
  const QueryFragments q(shared + kQOffset + stage * kTileBytes, warp_row), d_o(shared + kDoOffset + stage * kTileBytes, warp_row);
  ScoreFragments s = {}, dp = {};
  ScoreFunction score(args);
  gemm_qk(s, q, shared + kKOffset + stage * kTileBytes);     // S = Q Kᵀ
  score.modify(s);
  gemm_qk(dp, d_o, shared + kVOffset + stage * kTileBytes);  // dP = dO Vᵀ
//% if alibi
  const float slope = alibi_slope(args, sequence, at.head);
//% end
  const i32 first_key = at.key_tile * kTile + lane % 4 * 2;
//% if dropout
  const QueryDropout dropout(HeadDropout(args, at.batch, at.head), at.row_tile * kTile + warp_row);
#pragma unroll
  for (i32 k = 0; k < kKeyTiles / 2; ++k) {
    const KeptElements kept = dropout.of_keys(args, at.key_tile * (kTile / 16) + k);
#pragma unroll
    for (i32 i = 0; i < 8; ++i) {
      float& x = dp[0][2 * k + i / 4][i % 4];
      x = kept.has(i / 4, i / 2 % 2, i % 2) ? x * args.dropout_scale : 0.0f;
    }
  }
//% end
#pragma unroll
  for (i32 half = 0; half < 2; ++half) {
    const i32 query = at.row_tile * kTile + warp_row + 8 * half + lane / 4;
    if (query >= query_count(args, sequence)) continue;
    const float* statistics = statistics_of_query(args, sequence, at.head, query);
    const QueryStatistics of_query{lse_log2_of(statistics, query % kRows), delta_of(statistics, query % kRows)${per_share}};
    const HiddenKeys hidden(args, sequence, query, first_key);
    const ExponentTerms terms(args, sequence, at.head, ${slope_of_terms}query, first_key);
#pragma unroll
    for (i32 n = 0; n < kKeyTiles; ++n) {
#pragma unroll
      for (i32 e = 0; e < 2; ++e) {
        if (hidden.has(8 * n + e)) continue;
        const float p = of_query.probability(s[0][n][2 * half + e], args.softmax_scale_log2, terms.gain(0, 8 * n + e));
        sums[0][n][2 * half + e] = fma_rn_f32(p, dp[0][n][2 * half + e] - of_query.delta, sums[0][n][2 * half + e]);
      }
    }
  }
}

__device__ __forceinline__ void store_element(char* to, float x) { ${store_bias}; }

// A row for all queries: sums over the rows of the CTA, by its lanes, then by its warps, in a fixed order.
__device__ __forceinline__ void store_sums_of_rows(const Arguments& args, char* row, i32 first_key, u32 shared, const ScoreFragments& sums) {
  const u32 lane = lane_index(), of_warp = shared + kFloat * kTile * warp_index();
#pragma unroll
  for (i32 n = 0; n < kKeyTiles; ++n) {
#pragma unroll
    for (i32 e = 0; e < 2; ++e) {
      float sum = sums[0][n][e] + sums[0][n][2 + e];
      sum += shfl_sync_bfly_f32<4>(sum);
      sum += shfl_sync_bfly_f32<8>(sum);
      sum += shfl_sync_bfly_f32<16>(sum);
      if (lane < 4) st_shared_b32(of_warp + kFloat * (8 * n + 2 * lane + e), f32_to_bits(sum));
    }
  }
  bar_sync();
  for (i32 key = static_cast<i32>(thread_index()); key < kTile && first_key + key < args.${pair_keys}; key += kThreads) {
    float sum = 0;
    for (i32 warp = 0; warp < kWarps; ++warp) sum += bits_to_f32(ld_shared_b32(shared + kFloat * (warp * kTile + key)));
    store_element(row + kBiasBytes * static_cast<i64>(first_key + key), sum);
  }
}

__device__ __forceinline__ void store_tile(const Arguments& args, char* plane, i32 first_query, i32 first_key, const ScoreFragments& sums) {
  const i32 lane = static_cast<i32>(lane_index()), first_row = first_query + static_cast<i32>(warp_index()) * kWarpRows + lane / 4;
#pragma unroll
  for (i32 half = 0; half < 2; ++half) {
    const i32 query = first_row + 8 * half;
    if (query >= args.${pair_queries}) continue;
    char* const row = plane + kBiasBytes * (query * args.d_bias_stride_row);
#pragma unroll
    for (i32 n = 0; n < kKeyTiles; ++n) {
#pragma unroll
      for (i32 e = 0; e < 2; ++e) {
        const i32 key = first_key + 8 * n + lane % 4 * 2 + e;
        if (key < args.${pair_keys}) store_element(row + kBiasBytes * static_cast<i64>(key), sums[0][n][2 * half + e]);
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(kThreads) ${entry}(const __grid_constant__ Arguments args) {
  const BiasTile tile(args, block_index());
  const u32 shared = shared_base();
  ScoreTiles ahead(args, tile);
  ScoreFragments sums = {};
  bool any = ahead.find(args);
  if (any) load_tiles(args, ahead, shared, 0);
  cp_async_commit_group();
  i32 stage = 0;
  while (any) {
    const ScoreTiles now = ahead;
    any = ahead.next(args);
    if (kStages > 1) {
      if (any) load_tiles(args, ahead, shared, stage ^ 1);
      cp_async_commit_group();
      cp_async_wait_group<1>();
    } else {
      cp_async_wait_group<0>();
    }
    bar_sync();
    add_tile(args, now, shared, stage, sums);
    bar_sync();  // all have read the tiles
    if (kStages > 1) {
      stage ^= 1;
    } else {
      if (any) load_tiles(args, ahead, shared, 0);
      cp_async_commit_group();
    }
  }

  char* const elements = static_cast<char*>(args.d_bias) + kBiasBytes * (tile.batch(args) * args.d_bias_stride_batch + tile.head(args) * args.d_bias_stride_head);
  if (args.bias_rows == 1) {
    store_sums_of_rows(args, elements, tile.key_tile * kTile, shared, sums);
  } else {
    store_tile(args, elements, tile.row_tile * kTile, tile.key_tile * kTile, sums);
  }
}
//% include primitives/entry/${target}
