// Stores what a part of the keys gives this thread's two rows in fp32: ${partial_o}, and m and l, for which LSE of large scores has no room. `row` is the first
// of them in the sequence. The lanes of a quad store 32 bytes of a row together.
__device__ __forceinline__ void store_rows(const Arguments& args, const QueryTile& tile, i32 row, OutputFragments& o, Softmax& softmax) {
  const u32 quad = lane_index() % 4;
#pragma unroll
  for (i32 half = 0; half < 2; ++half) {
//% if alibi_shared
    const float alibi = alibi_of_diagonal(args, tile, row + 8 * half);
//% end
    float sum = softmax.row_sum[half];
    sum += shfl_sync_bfly_f32<1>(sum);
    sum += shfl_sync_bfly_f32<2>(sum);
    const i32 i = row + 8 * half;
    const bool exists = kEvenTiles || i < tile.first_row + tile.rows;
    const i64 place = partial_row(args, tile.sequence, tile.key_part, tile.head_of(i), QueryTile::position_of(i));
    // The maximum of a row that has seen no key may never have been set.
    if (quad == 0 && exists) st_global_v2_f32(args.statistics_partial + 2 * place, {sum != 0 ? softmax.row_max[half]${minus_alibi} : negative_infinity(), sum});
    const bool sees = exists && sum != 0;  // where the sum is 0, nobody reads O
//% if !invariant
    const float inverse = rcp_approx_ftz_f32(sum)${per_share};
//% end
    float* const to = args.o_partial + place * kHeadDimV + 2 * quad;
#pragma unroll
    for (i32 n = 0; n < kHeadDimV / 8; ++n)
//% if invariant
      if (sees) st_global_v2_f32(to + 8 * n, {o[4 * n + 2 * half], o[4 * n + 2 * half + 1]});
//% else
      if (sees) st_global_v2_f32(to + 8 * n, {o[4 * n + 2 * half] * inverse, o[4 * n + 2 * half + 1] * inverse});
//% end
  }
}
