// FlashAttention, Algorithm 1 (Dao, Fu, Ermon, Rudra, Ré 2022), of one head, on mma.sync (compute capability 8.0 and newer): blocks of keys outside,
// tiles of queries inside; O, l and m of all queries live in device memory and are read and written at each visit.
//
//   for each block j of keys:   load K_j, V_j
//     for each tile i of queries that attends to some of them:   load Q_i, O_i, l_i, m_i
//       S = Q_i K_jᵀ, masked                  m' = max(m_i, rowmax S)
//       P = exp(S - m')                       l' = l_i exp(m_i - m') + rowsum P
//       O_i = (l_i exp(m_i - m') O_i + P V_j) / l',   l_i = l',   m_i = m'
//   LSE = m + ln l
//
//% if dropout
// What dropout keeps of P goes into the product (Algorithm 2 of that paper); l has all. The paper divides P by the share that is kept; here the
// last visit divides O by it, which is not rounded to 16 bits in between.
//
//% end
// One CTA has the whole head, as in the paper: its tiles share O, l and m from block to block. The first visit of a tile reads no O, l, m; the last
// one writes O itself, rounded, and LSE.
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

constexpr i32 kBlockKv = ${block_kv}, kHeadDim = ${head_dim}, kElementBytes = ${element_bytes}, kWarps = ${warps};
//% for shared_offsets
constexpr u32 ${shared_offsets.name} = ${shared_offsets.offset};
//% end
constexpr float kRescaleThreshold = 0;  // at every visit
//% include ladder/warp_tiles
constexpr i32 kDimSteps = kHeadDim / 16;         // k16 steps of Q Kᵀ; kDimTail: and a k8 step

//% include tile/swizzle
//% include tile/${chunk_access}
//% include tile/copy_tile
//% include mma_sync/mma_operands
//% include attention/sequence_${sequence}
//% include attention/mask_${mask}
//% include attention/key_blocks
//% include attention/score_${score}
//% if dropout
//% include attention/dropout_of_queries
//% end
//% include ladder/row_pointer
//% include ladder/store_output
//% include mma_sync/load_query
//% include mma_sync/query_shared
//% include mma_sync/gemm_qk
//% include mma_sync/gemm_pv
//% include mma_sync/online_softmax

struct Head {
  Sequence sequence;
  i32 head, head_kv;
  i64 first_row;  // of the head, among the rows of O, l and m in the workspace and of LSE

  __device__ __forceinline__ explicit Head(const Arguments& args) : sequence(args, static_cast<i32>(block_index()) / args.heads_q) {
    head = static_cast<i32>(block_index()) - sequence.batch * args.heads_q;
    head_kv = head / args.group_size;
    first_row = static_cast<i64>(block_index()) * args.seq_q;
  }
};

// Tile i, and its blocks of keys. The first block is visited in any case, since queries that attend to nothing have outputs, too.
struct QueryTile {
  i32 first_row, rows;
  KeyBlocks blocks;

  __device__ __forceinline__ QueryTile(const Arguments& args, const Sequence& sequence, i32 i) {
    first_row = i * kRowsPerTile;
    rows = query_count(args, sequence) - first_row < kRowsPerTile ? query_count(args, sequence) - first_row : kRowsPerTile;
    blocks = KeyBlocks(args, sequence, first_row, first_row + rows - 1);
    if (blocks.end == 0) blocks.end = 1;
  }
};

// Scores of keys that their row does not attend to become -inf. first_row: the warp's.
__device__ __forceinline__ void mask_scores(ScoreFragments& s, const Arguments& args, const Sequence& sequence, i32 first_row, i32 block) {
  const i32 first_key = block * kBlockKv + static_cast<i32>(lane_index() % 4 * 2);
#pragma unroll
  for (i32 half = 0; half < 2; ++half) {
    const HiddenKeys hidden(args, sequence, first_row + 8 * half + static_cast<i32>(lane_index() / 4), first_key);
#pragma unroll
    for (i32 n = 0; n < kKeyTiles; ++n) {
#pragma unroll
      for (i32 e = 0; e < 2; ++e)
        if (hidden.has(8 * n + e)) s[0][n][2 * half + e] = negative_infinity();
    }
  }
}

// Over the four lanes that share a row.
__device__ __forceinline__ float quad_sum(float x) {
  x += shfl_sync_bfly_f32<1>(x);
  return x + shfl_sync_bfly_f32<2>(x);
}
__device__ __forceinline__ float quad_max(float x) {
  x = max_f32(x, shfl_sync_bfly_f32<1>(x));
  return max_f32(x, shfl_sync_bfly_f32<2>(x));
}

// The thread's two rows of O, l and m in the workspace; `exists` says which the tensor has.
struct StoredRows {
  float* o[2];
  float* state[2];  // l, m
  bool exists[2];

  __device__ __forceinline__ StoredRows(const Arguments& args, const Head& head, const QueryTile& tile, i32 warp_row) {
#pragma unroll
    for (i32 half = 0; half < 2; ++half) {
      const i32 row = warp_row + 8 * half + static_cast<i32>(lane_index() / 4);
      const i64 stored = head.first_row + tile.first_row + row;
      o[half] = args.o_blocks + stored * kHeadDim + lane_index() % 4 * 2;
      state[half] = args.row_states + 2 * stored;
      exists[half] = row < tile.rows;
    }
  }

  // One of the four lanes that share a row reads l and m, and keeps l: it is their sum that counts. O is brought back to what it was before the
  // division by l.
  __device__ __forceinline__ void load(OnlineSoftmax& softmax, OutputFragments& acc_o) const {
#pragma unroll
    for (i32 half = 0; half < 2; ++half) {
      Vec2F32 l_and_m = {0, negative_infinity()};
      if (exists[half] && lane_index() % 4 == 0) l_and_m = ld_weak_global_v2_f32(state[half]);
      softmax.row_sum[0][half] = l_and_m.x;
      softmax.row_max[0][half] = quad_max(l_and_m.y);
      const float l = quad_sum(l_and_m.x);
#pragma unroll
      for (i32 n = 0; n < kChunks; ++n) {
        if (!exists[half]) break;
        const Vec2F32 two = ld_weak_global_v2_f32(o[half] + 8 * n);
        acc_o[0][n][2 * half] = l * two.x;
        acc_o[0][n][2 * half + 1] = l * two.y;
      }
    }
  }
  __device__ __forceinline__ void store(const OnlineSoftmax& softmax, const OutputFragments& acc_o) const {
#pragma unroll
    for (i32 half = 0; half < 2; ++half) {
      if (!exists[half]) continue;
      if (lane_index() % 4 == 0) st_global_v2_f32(state[half], Vec2F32{softmax.row_sum[0][half], softmax.row_max[0][half]});
#pragma unroll
      for (i32 n = 0; n < kChunks; ++n) st_global_v2_f32(o[half] + 8 * n, Vec2F32{acc_o[0][n][2 * half], acc_o[0][n][2 * half + 1]});
    }
  }
};

__device__ __forceinline__ void store_lse(const Arguments& args, const Head& head, const QueryTile& tile, i32 warp_row,
                                          const OnlineSoftmax& softmax) {
  if (args.lse == nullptr || lane_index() % 4 != 0) return;
#pragma unroll
  for (i32 half = 0; half < 2; ++half) {
    const i32 row = warp_row + 8 * half + static_cast<i32>(lane_index() / 4);
    if (row < tile.rows) st_global_f32(args.lse + head.first_row + tile.first_row + row, softmax.lse(args.softmax_scale, 0, half));
  }
}

extern "C" __global__ void __launch_bounds__(kThreads) ${entry}(const __grid_constant__ Arguments args) {
  const Head head(args);
  const i32 warp_row = warp_index() * kWarpRows, tiles = (query_count(args, head.sequence) + kRowsPerTile - 1) / kRowsPerTile,
            blocks = QueryTile(args, head.sequence, tiles - 1).blocks.end;
  const u32 shared = shared_base(), q_tile = shared + kQOffset, k_tile = shared + kKOffset, v_tile = shared + kVOffset;

  using KvStream = TileStream<kBlockKv, false, kThreads>;
  KvStream k(row_pointer(args.k, head.sequence.key_offset(args.k_stride_batch, args.k_stride_row), head.head_kv * args.k_stride_head, 0), kElementBytes * args.k_stride_row, key_count(args, head.sequence),
             thread_index());
  KvStream v(row_pointer(args.v, head.sequence.key_offset(args.v_stride_batch, args.v_stride_row), head.head_kv * args.v_stride_head, 0), kElementBytes * args.v_stride_row, key_count(args, head.sequence),
             thread_index());
  for (i32 block = 0; block < blocks; ++block) {
    k.load_next(k_tile);
    v.load_next(v_tile);
    for (i32 i = 0; i < tiles; ++i) {
      const QueryTile tile(args, head.sequence, i);
      if (block >= tile.blocks.end) continue;
      const char* q = row_pointer(args.q, head.sequence.query_offset(args.q_stride_batch, args.q_stride_row), head.head * args.q_stride_head, tile.first_row * args.q_stride_row);
      TileStream<kRowsPerTile, false, kThreads>(q, kElementBytes * args.q_stride_row, tile.rows, thread_index()).load_next(q_tile);
      cp_async_commit_group();

      const StoredRows stored(args, head, tile, warp_row);
      OnlineSoftmax softmax(args.softmax_scale_log2);
      OutputFragments acc_o = {};
      if (block > 0) stored.load(softmax, acc_o);

      cp_async_wait_group<0>();
      bar_sync();  // Q, K and V have landed for all threads
      ScoreFragments acc_s = {};
      gemm_qk(acc_s, QueryFragments(q_tile, warp_row), k_tile);  // S = Q Kᵀ
      ScoreFunction(args).modify(acc_s);
      if (block >= tile.blocks.unmasked_end) mask_scores(acc_s, args, head.sequence, tile.first_row + warp_row, block);
      softmax.update<true>(acc_s, acc_o);
//% if dropout
      const QueryDropout dropout[1] = {QueryDropout(HeadDropout(args, head.sequence.batch, head.head), tile.first_row + warp_row)};
//% end
      gemm_pv(acc_o, acc_s, v_tile${kept_keys});  // O = O + P V
      softmax.normalize(acc_o);

      if (block + 1 < tile.blocks.end) {
        stored.store(softmax, acc_o);
      } else {
//% if dropout
#pragma unroll
        for (i32 e = 0; e < 4 * kChunks; ++e) acc_o[0][e / 4][e % 4] *= args.dropout_scale;
//% end
        char* o = row_pointer(args.o, head.sequence.query_offset(args.o_stride_batch, args.o_stride_row), head.head * args.o_stride_head,
                              (tile.first_row + warp_row) * args.o_stride_row);
        store_output(o, kElementBytes * args.o_stride_row, tile.rows - warp_row, q_tile, warp_row, acc_o);
        store_lse(args, head, tile, warp_row, softmax);
      }
      bar_sync();  // all have finished with Q, and after the last tile with K and V; l and m are there for all lanes
    }
  }
}
//% include primitives/entry/${target}
