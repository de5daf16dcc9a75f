// The scores of one tile of queries of one head, on mma.sync (compute capability 8.0 and newer), into device memory:
//
//   S = Q Kᵀ,   in fp32, for the keys that each query attends to
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
//% include ladder/warp_tiles
constexpr i32 kDimSteps = kHeadDim / 16;         // k16 steps of Q Kᵀ; kDimTail: and a k8 step

//% include tile/swizzle
//% include tile/${chunk_access}
//% include tile/copy_tile
//% include mma_sync/mma_operands
//% include attention/sequence_${sequence}
//% include attention/mask_${mask}
//% include attention/score_${score}
//% include ladder/query_tile
//% include ladder/score_rows
//% include ladder/row_pointer
//% include ladder/tile_ring
//% include mma_sync/load_query
//% include mma_sync/query_shared
//% include mma_sync/gemm_qk

// A thread has two neighbouring keys of each eight, of two queries.
__device__ __forceinline__ void store_scores(const Arguments& args, const QueryTile& tile, i32 warp_row, i32 block, const ScoreFragments& s) {
  const i32 first_key = block * kBlockKv + static_cast<i32>(lane_index() % 4 * 2);
#pragma unroll
  for (i32 half = 0; half < 2; ++half) {
    const i32 row = warp_row + 8 * half + static_cast<i32>(lane_index() / 4), keys = attended_keys(args, tile, row) - first_key;
    float* to = score_row(args, tile, row) + first_key;
#pragma unroll
    for (i32 n = 0; n < kKeyTiles; ++n) {
      if (8 * n + 1 < keys) {
        st_global_v2_f32(to + 8 * n, Vec2F32{s[0][n][2 * half], s[0][n][2 * half + 1]});
      } else if (8 * n < keys) {
        st_global_f32(to + 8 * n, s[0][n][2 * half]);
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(kThreads) ${entry}(const __grid_constant__ Arguments args) {
  const QueryTile tile(args);
  const i32 warp_row = warp_index() * kWarpRows, blocks = attended_blocks(args, tile);
  const u32 shared = shared_base();

  const char* q = row_pointer(args.q, tile.sequence.query_offset(args.q_stride_batch, args.q_stride_row), tile.head * args.q_stride_head, tile.first_row * args.q_stride_row);
  const char* k = row_pointer(args.k, tile.sequence.key_offset(args.k_stride_batch, args.k_stride_row), tile.head_kv * args.k_stride_head, 0);
  TileStream<kRowsPerTile, false, kThreads>(q, kElementBytes * args.q_stride_row, tile.rows, thread_index()).load_next(shared + kQOffset);
  TileRing ring{{k, kElementBytes * args.k_stride_row, key_count(args, tile.sequence), static_cast<i32>(thread_index())}, blocks, shared + kKOffset};
  ring.load(0);  // one cp.async group with Q

  const QueryFragments q_rows(shared + kQOffset, warp_row);
  for (i32 block = 0; block < blocks; ++block) {
    ScoreFragments acc_s = {};
    const u32 k_tile = ring.acquire();
    gemm_qk(acc_s, q_rows, k_tile);  // S = Q Kᵀ
    ScoreFunction(args).modify(acc_s);
    store_scores(args, tile, warp_row, block, acc_s);
    ring.release();
  }
  cp_async_wait_group<0>();
}
//% include primitives/entry/${target}
