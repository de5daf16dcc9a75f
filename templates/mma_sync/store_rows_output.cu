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
  store_query_rows(args, tile, q_tile, warp_row);
}

// LSE is packed (B, Hq, Sq); one lane of a quad writes each row.
__device__ __forceinline__ void store_lse(const Arguments& args, const QueryTile& tile, i32 warp_row, const OnlineSoftmax& softmax) {
//% if sink
  constexpr float kLn2 = 0.693147180559945309f;
//% end
  const u32 lane = lane_index();
  if (args.lse == nullptr || lane % 4 != 0) return;
#pragma unroll
  for (i32 t = 0; t < kRowTiles; ++t) {
#pragma unroll
    for (i32 half = 0; half < 2; ++half) {
      const i32 row = warp_row + 16 * t + 8 * half + static_cast<i32>(lane / 4), i = tile.first_row + row;
//% if sink
      if (row >= tile.rows) continue;
      const RowEnd end(args, tile.head_of(i), softmax.row_max[t][half], softmax.row_sum[t][half]);
      st_global_f32(args.lse + packed_query_row(args, tile.sequence, tile.head_of(i), QueryTile::position_of(i)),
                    end.lse(lg2_approx_ftz_f32(end.sum) * kLn2));
//% else
      if (row < tile.rows)
        st_global_f32(args.lse + packed_query_row(args, tile.sequence, tile.head_of(i), QueryTile::position_of(i)),
                      softmax.lse(${score_unit}, t, half));
//% end
    }
  }
}
