// O leaves through the warp's own rows of Q's tile, so that global stores are whole chunks of a row.
__device__ __forceinline__ void store_output(const Arguments& args, const QueryTile& tile, u32 q_tile, i32 warp_row,
                                             const OutputFragments& acc_o) {
  const u32 lane = lane_index();
  bar_warp_sync();
#pragma unroll
  for (i32 t = 0; t < kRowTiles; ++t) {
#pragma unroll
    for (i32 n = 0; n < kChunks; ++n) {
#pragma unroll
      for (i32 half = 0; half < 2; ++half)
        st_shared_b32(q_tile + tile_offset(warp_row + 16 * t + 8 * half + lane / 4, n) + lane % 4 * 4,
                      pack_elements(acc_o[t][n][2 * half], acc_o[t][n][2 * half + 1]));
    }
  }
  bar_warp_sync();
  const i64 row_bytes = 2 * args.o_stride_row;
  char* o = const_cast<char*>(row_pointer(args.o, tile.sequence.query_offset(args.o_stride_batch, args.o_stride_row), tile.head * args.o_stride_head, 0));
  store_tile<kWarpRows, kEvenTiles, kWarpSize>(o + (tile.first_row + warp_row) * row_bytes, q_tile + warp_row * kRowBytes, row_bytes,
                                                tile.rows - warp_row, lane);
}

// LSE is packed (B, Hq, Sq); one lane of a quad writes each row.
__device__ __forceinline__ void store_lse(const Arguments& args, const QueryTile& tile, i32 warp_row, const OnlineSoftmax& softmax) {
  const u32 lane = lane_index();
  if (args.lse == nullptr || lane % 4 != 0) return;
  float* lse = args.lse + packed_query_row(args, tile.sequence, tile.head, tile.first_row);
#pragma unroll
  for (i32 t = 0; t < kRowTiles; ++t) {
#pragma unroll
    for (i32 half = 0; half < 2; ++half) {
      const i32 row = warp_row + 16 * t + 8 * half + lane / 4;
      if (row < tile.rows) st_global_f32(lse + row, softmax.lse(args.softmax_scale, t, half));
    }
  }
}
