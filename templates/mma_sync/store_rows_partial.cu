// Where the results of a row of the tile lie, among those of all parts.
__device__ __forceinline__ i64 place_of_results(const Arguments& args, const QueryTile& tile, i32 row) {
  const i32 i = tile.first_row + row;
  return partial_row(args, tile.sequence, tile.key_part, tile.head_of(i), QueryTile::position_of(i));
}

// What a part of the keys gives the warp's rows, in fp32: ${partial_o}. The lanes of a quad store 32 bytes of a row together.
__device__ __forceinline__ void store_output(const Arguments& args, const QueryTile& tile, u32 /*q_tile*/, i32 warp_row,
                                             const OutputFragments& acc_o) {
  const u32 lane = lane_index();
#pragma unroll
  for (i32 i = 0; i < 2 * kRowTiles; ++i) {
    const i32 row = warp_row + 8 * i + static_cast<i32>(lane / 4);
    if (row >= tile.rows) continue;
    float* const o = args.o_partial + place_of_results(args, tile, row) * kHeadDimV + lane % 4 * 2;
#pragma unroll
    for (i32 n = 0; n < kChunks; ++n) st_global_v2_f32(o + 8 * n, {acc_o[i / 2][n][i % 2 * 2], acc_o[i / 2][n][i % 2 * 2 + 1]});
  }
}

// The maximum and the sum of each row, which one lane of a quad writes. Not LSE, which large scores leave no room for the sum.
__device__ __forceinline__ void store_lse(const Arguments& args, const QueryTile& tile, i32 warp_row, const OnlineSoftmax& softmax) {
  const u32 lane = lane_index();
  if (lane % 4 != 0) return;
#pragma unroll
  for (i32 i = 0; i < 2 * kRowTiles; ++i) {
    const i32 row = warp_row + 8 * i + static_cast<i32>(lane / 4);
    if (row < tile.rows)
      st_global_v2_f32(args.statistics_partial + 2 * place_of_results(args, tile, row), {softmax.row_max[i / 2][i % 2], softmax.row_sum[i / 2][i % 2]});
  }
}
