// attune ${kernel_class} · templates ${templates_hash}
//
// dK and dV of one tile of keys of one key/value head, on mma.sync (compute capability 8.0 and newer). Keys are the rows of all products
// but dQ's:
//
//   for each query head of the group, for each block of queries:
//     Sᵀ = K Qᵀ        Pᵀ = exp2(c Sᵀ - LSE·log2(e)), masked     dV = dV + Pᵀ dO
//     dPᵀ = V dOᵀ      dSᵀ = Pᵀ ∘ (dPᵀ - delta)                  dK = dK + dSᵀ Q
//     ${query_gradient_formula}
//   dK = scale·dK,   c = scale·log2(e)
//
// A warp owns kWarpRows keys. kSplit warps own the same: each computes Sᵀ and dPᵀ of kWarpQueries queries of a block, and kPartChunks chunks of
// the columns of dK and dV from all of them.
//
// shared memory, bytes:
//% for shared_buffers
//   ${shared_buffers.offset}  ${shared_buffers.picture}
//% end
//% include primitives/prelude/${target}
//% include primitives/memory/${target}
//% include primitives/math/${target}
//% include primitives/sm80/${target}
//% include primitives/single/${target}
//% include primitives/add/${target}
//% include primitives/turns/${target}

struct Arguments {
//% for argument_fields
  ${argument_fields.type} ${argument_fields.name};
//% end
};
constexpr u32 kArgumentBytes = ${argument_bytes};

constexpr i32 kBlockQ = ${block_q}, kBlockKv = ${block_kv}, kHeadDim = ${head_dim}, kWarps = ${warps}, kSplit = ${split}, kStages = ${stages};
constexpr i32 kCtasPerSm = ${ctas_per_sm};

constexpr i32 kThreads = kWarps * kWarpSize;
constexpr i32 kWarpRows = kBlockKv / (kWarps / kSplit), kWarpQueries = kBlockQ / kSplit;
constexpr i32 kRowTiles = kWarpRows / 16;        // m16 tiles of a warp
constexpr i32 kKeyTiles = kWarpQueries / 8;      // n8 tiles of Sᵀ
constexpr i32 kChunks = kHeadDim / 8;            // 16-byte chunks of a row
constexpr i32 kDimSteps = kHeadDim / 16;         // k16 steps of a product over the head dim
constexpr bool kDimTail = kHeadDim % 16 != 0;    // and a k8 step
constexpr u32 kRowBytes = ${row_bytes}, kSwizzleMask = ${swizzle_mask}, kSwizzleShift = ${swizzle_shift};
constexpr i32 kPartChunks = (kChunks + kSplit - 1) / kSplit;  // of dK and dV that a warp computes
constexpr u32 kKOffset = ${resident_first_offset}, kVOffset = ${resident_second_offset};
constexpr u32 kFirstOffset = ${streamed_first_offset}, kSecondOffset = ${streamed_second_offset}, kStreamedTileBytes = ${streamed_tile_bytes};
constexpr u32 kStatisticsOffset = ${statistics_offset};
//% if scores_shared
constexpr u32 kPOffset = ${p_offset}, kDsOffset = ${ds_offset};
constexpr u32 kScoreRowBytes = 2 * kBlockQ, kScoreSwizzleMask = ${score_swizzle_mask}, kScoreSwizzleShift = ${score_swizzle_shift};
//% end
//% if query_sums
constexpr i32 kDqRows = ${dq_rows}, kDqColumnParts = ${dq_column_parts};  // of dQ's block that a warp computes
constexpr i32 kDqChunks = (kChunks + kDqColumnParts - 1) / kDqColumnParts;
static_assert(kBlockQ / kDqRows * kDqColumnParts == kWarps);
//% end
static_assert(kBlockKv % (16 * (kWarps / kSplit)) == 0 && kBlockQ % (16 * kSplit) == 0 && kHeadDim % 8 == 0);
static_assert(kRowBytes == 2 * kHeadDim && kStreamedTileBytes == kBlockQ * kRowBytes);

using ScoreFragments = float[kRowTiles][kKeyTiles][4];

//% include tile/swizzle
//% include tile/${chunk_access}
//% include tile/copy_tile
//% include tile/mma_operands
//% include masks/${mask}
//% include backward/first_query_${mask}

using StreamedRows = TileStream<kBlockQ, false, kThreads>;  // of Q and dO
//% include backward/query_statistics
//% include backward/streamed_statistics
//% include backward/${ring}
//% include steps/load_query
//% include steps/query_shared
//% include steps/gemm_qk
//% include backward/gradient_columns

struct KeyGradients {
  GradientFragments dk, dv;
};

// What is a warp's of a tile: its first key and, in each block, its first query; its columns of dK and dV.
struct WarpPart {
  i32 row, query, first_chunk, first_stored;

  __device__ __forceinline__ WarpPart() {
    const i32 part = warp_index() % kSplit;
    row = warp_index() / kSplit * kWarpRows;
    query = part * kWarpQueries;
    // The last part begins early enough to be as wide as the others; what it shares with the one before, that one stores.
    first_stored = part * kPartChunks;
    first_chunk = first_stored < kChunks - kPartChunks ? first_stored : kChunks - kPartChunks;
  }
};

//% if scores_shared
//% include backward/score_tiles
//% end
//% include backward/query_gradient_${dq}
//% include backward/key_gradients_${scores}
//% include backward/key_tiles_${key_tiles}

__device__ __forceinline__ const char* row_pointer(const void* tensor, i64 batch_offset, i64 head_offset, i64 row_offset) {
  return static_cast<const char*>(tensor) + 2 * (batch_offset + head_offset + row_offset);
}

// Sᵀ and dPᵀ become Pᵀ and dSᵀ. first_key: the warp's, in the sequence; query: its first in the block.
template <bool kMasked>
__device__ __forceinline__ void differentiate(ScoreFragments& p, ScoreFragments& ds, const Arguments& args, i32 first_key, i32 block, i32 query,
                                              u32 shared, i32 stage) {
#pragma unroll
  for (i32 n = 0; n < kKeyTiles; ++n) {
    const i32 first = query + 8 * n + static_cast<i32>(lane_index() % 4 * 2);
    QueryStatistics two[2];
    load_statistics(two, shared, stage, first);
#pragma unroll
    for (i32 e = 0; e < 2; ++e) {
      // The last visible key, seen from this thread's first.
      const i32 keys = kMasked ? last_key(args, block * kBlockQ + first + e) - first_key - static_cast<i32>(lane_index() / 4) : 0;
#pragma unroll
      for (i32 i = 0; i < 2 * kRowTiles; ++i) {
        float& probability = p[i / 2][n][i % 2 * 2 + e];
        float& gradient = ds[i / 2][n][i % 2 * 2 + e];
        probability = two[e].probability(probability, args.softmax_scale_log2);
        if (kMasked && 8 * i > keys) probability = 0;
        gradient = probability * (gradient - two[e].delta);
      }
    }
  }
}

template <bool kMasked>
__device__ __forceinline__ void query_step(const Arguments& args, i32 block, i32 tile_key, const WarpPart& part, TilePairRing& ring,
                                           const QueryFragments& k, const QueryFragments& v, KeyGradients& acc, QueryGradient& dq, u32 shared) {
  ScoreFragments acc_p = {}, acc_ds = {};
  ring.acquire();
  dq.pass_turn();
  gemm_qk(acc_p, k, ring.first_tile() + part.query * kRowBytes);
  gemm_qk(acc_ds, v, ring.second_tile() + part.query * kRowBytes);
  differentiate<kMasked>(acc_p, acc_ds, args, tile_key + part.row, block, part.query, shared, ring.stage);
  add_key_gradients(acc, acc_p, acc_ds, part, ring, dq, block, shared);
  dq.add(block);
  ring.release();
}

extern "C" __global__ void __launch_bounds__(kThreads, kCtasPerSm) ${entry}(const __grid_constant__ Arguments args) {
  const u32 shared = shared_base();
  const KeyTile taken(args, shared);
  const i32 heads_kv = args.heads_q / args.group_size, batch = taken.batch_head / heads_kv, head_kv = taken.batch_head - batch * heads_kv;
  const i32 tile_key = taken.tile * kBlockKv, keys = args.seq_kv - tile_key < kBlockKv ? args.seq_kv - tile_key : kBlockKv;
  const WarpPart part;

  // Blocks of queries that attend to the tile: [first, whole_from) in part, [whole_from, end) to all of it. May be empty.
  const i32 first_row_seen = first_query(args, tile_key), end = (args.seq_q + kBlockQ - 1) / kBlockQ;
  const i32 first = first_row_seen < args.seq_q ? first_row_seen / kBlockQ : end;
  // Keys beyond the last would have a P that is not 0, or no number: their dS must not reach dQ.
  const bool ragged = QueryGradient::kAdded && keys < kBlockKv;
  const i32 whole_from = ragged ? end : (first_query(args, tile_key + keys - 1) + kBlockQ - 1) / kBlockQ;

  using TileRows = TileStream<kBlockKv, false, kThreads>;
  TileRows(row_pointer(args.k, batch * args.k_stride_batch, head_kv * args.k_stride_head, tile_key * args.k_stride_row), 2 * args.k_stride_row,
           keys, thread_index())
      .load_next(shared + kKOffset);
  TileRows(row_pointer(args.v, batch * args.v_stride_batch, head_kv * args.v_stride_head, tile_key * args.v_stride_row), 2 * args.v_stride_row,
           keys, thread_index())
      .load_next(shared + kVOffset);
  cp_async_commit_group();

  const QueryFragments k(shared + kKOffset, part.row), v(shared + kVOffset, part.row);
  KeyGradients acc = {};
  for (i32 member = 0; member < args.group_size; ++member) {
    const i32 head = head_kv * args.group_size + member;
    const i64 first_row = static_cast<i64>(first) * kBlockQ, row_head = static_cast<i64>(batch) * args.heads_q + head;
    const char* q = row_pointer(args.q, batch * args.q_stride_batch, head * args.q_stride_head, first_row * args.q_stride_row);
    const char* d_o = row_pointer(args.d_o, batch * args.d_o_stride_batch, head * args.d_o_stride_head, first_row * args.d_o_stride_row);
    const i32 rows = args.seq_q - static_cast<i32>(first_row);
    TilePairRing ring{StreamedRows(q, 2 * args.q_stride_row, rows, thread_index()),
                      StreamedRows(d_o, 2 * args.d_o_stride_row, rows, thread_index()),
                      StreamedBeside(args, row_head * end * kBlockQ + first_row), end - first, shared};
    if (member > 0) bar_sync();  // all have read the last block of the head before
    ring.prefetch();
    QueryGradient dq(args, row_head, taken.tile, shared);
    i32 block = first;
    for (; block < whole_from && block < end; ++block) query_step<true>(args, block, tile_key, part, ring, k, v, acc, dq, shared);
    for (; block < end; ++block) query_step<false>(args, block, tile_key, part, ring, k, v, acc, dq, shared);
    dq.finish();
  }

  // dK and dV leave through the tiles of K and V, so that global stores are whole chunks of a row.
  cp_async_wait_group<0>();
  bar_sync();
  put_gradient(shared + kKOffset, part.row, part.first_chunk, part.first_stored, args.softmax_scale, acc.dk);
  put_gradient(shared + kVOffset, part.row, part.first_chunk, part.first_stored, 1.0f, acc.dv);
  bar_sync();
  const i64 dk_row_bytes = 2 * args.d_k_stride_row, dv_row_bytes = 2 * args.d_v_stride_row;
  char* d_k = const_cast<char*>(row_pointer(args.d_k, batch * args.d_k_stride_batch, head_kv * args.d_k_stride_head, 0));
  char* d_v = const_cast<char*>(row_pointer(args.d_v, batch * args.d_v_stride_batch, head_kv * args.d_v_stride_head, 0));
  store_tile<kBlockKv, false, kThreads>(d_k + tile_key * dk_row_bytes, shared + kKOffset, dk_row_bytes, keys, thread_index());
  store_tile<kBlockKv, false, kThreads>(d_v + tile_key * dv_row_bytes, shared + kVOffset, dv_row_bytes, keys, thread_index());
}
//% include primitives/entry/${target}
