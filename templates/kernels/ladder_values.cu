// The output of one tile of queries of one head, on mma.sync (compute capability 8.0 and newer), from the probabilities in device memory:
//
//   O = P V,   P rounded to the type of V for the product
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

//% include tile/swizzle
//% include tile/${chunk_access}
//% include tile/copy_tile
//% include mma_sync/mma_operands
//% include attention/sequence_${sequence}
//% include attention/mask_${mask}
//% include ladder/query_tile
//% include ladder/score_rows
//% include ladder/row_pointer
//% include ladder/tile_ring
//% include ladder/store_output
//% include mma_sync/gemm_pv

// A thread has two neighbouring keys of each eight, of two queries. Keys that a query does not attend to have no P in memory: it is 0.
__device__ __forceinline__ void load_probabilities(ScoreFragments& p, const Arguments& args, const QueryTile& tile, i32 warp_row, i32 block) {
  const i32 first_key = block * kBlockKv + static_cast<i32>(lane_index() % 4 * 2);
#pragma unroll
  for (i32 half = 0; half < 2; ++half) {
    const i32 row = warp_row + 8 * half + static_cast<i32>(lane_index() / 4), keys = attended_keys(args, tile, row) - first_key;
    const float* from = score_row(args, tile, row) + first_key;
#pragma unroll
    for (i32 n = 0; n < kKeyTiles; ++n) {
      Vec2F32 two = {0, 0};
      if (8 * n + 1 < keys) {
        two = ld_weak_global_v2_f32(from + 8 * n);
      } else if (8 * n < keys) {
        two.x = ld_weak_global_f32(from + 8 * n);
      }
      p[0][n][2 * half] = two.x;
      p[0][n][2 * half + 1] = two.y;
    }
  }
}

extern "C" __global__ void __launch_bounds__(kThreads) ${entry}(const __grid_constant__ Arguments args) {
  const QueryTile tile(args);
  const i32 warp_row = warp_index() * kWarpRows, blocks = attended_blocks(args, tile);
  const u32 shared = shared_base();

  const char* v = row_pointer(args.v, tile.sequence.key_offset(args.v_stride_batch, args.v_stride_row), tile.head_kv * args.v_stride_head, 0);
  TileRing ring{{v, kElementBytes * args.v_stride_row, key_count(args, tile.sequence), static_cast<i32>(thread_index())}, blocks, shared + kVOffset};
  ring.load(0);

  OutputFragments acc_o = {};
  for (i32 block = 0; block < blocks; ++block) {
    ScoreFragments p;
    load_probabilities(p, args, tile, warp_row, block);
    const u32 v_tile = ring.acquire();
    gemm_pv(acc_o, p, v_tile);  // O = O + P V
    ring.release();
  }
  cp_async_wait_group<0>();

  char* o = row_pointer(args.o, tile.sequence.query_offset(args.o_stride_batch, args.o_stride_row), tile.head * args.o_stride_head,
                        (tile.first_row + warp_row) * args.o_stride_row);
  store_output(o, kElementBytes * args.o_stride_row, tile.rows - warp_row, shared + kOOffset, warp_row, acc_o);
}
//% include primitives/entry/${target}
