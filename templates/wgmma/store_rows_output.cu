// Stores O / l and LSE of this thread's two rows; `row` is the first of them in the sequence. The lanes of a quad exchange words of four fragments,
// so that each lane stores 16 bytes of a row.
__device__ __forceinline__ void store_rows(const Arguments& args, const QueryTile& tile, i32 row, OutputFragments& o, Softmax& softmax) {
  constexpr float kLn2 = 0.693147180559945309f;
  const u32 quad = lane_index() % 4;
#pragma unroll
  for (i32 half = 0; half < 2; ++half) {
//% if alibi_shared
    const float alibi = alibi_of_diagonal(args, tile, row + 8 * half);
//% end
//% if invariant
    const float sum = softmax.row_sum[half];  // of all parts, and of the quad
//% else
    float sum = softmax.row_sum[half];
    sum += shfl_sync_bfly_f32<1>(sum);
    sum += shfl_sync_bfly_f32<2>(sum);
//% end
//% if sink
    const RowEnd end(args, tile.head_of(row + 8 * half), softmax.row_max[half]${minus_alibi}, sum);
    const float inverse = end.inverse()${per_share};
//% else
    const float inverse = sum != 0 ? rcp_approx_ftz_f32(sum)${per_share} : 0;  // a row that has seen no key keeps its zeros; a NaN stays one
//% end
    const i32 i = row + 8 * half;
    const bool exists = kEvenTiles || i < tile.first_row + tile.rows;
    const i32 head = tile.head_of(i), position = QueryTile::position_of(i);
    if (args.lse != nullptr && quad == 0 && exists) {
//% if sink
      const float lse = end.lse(softmax.log2_without_headroom(end.sum) * kLn2);
//% else
      const float lse = sum != 0 ? fma_rn_f32(softmax.row_max[half]${minus_alibi}, ${score_unit}, softmax.log2_without_headroom(sum) * kLn2) : negative_infinity();
//% end
      st_global_f32(args.lse + packed_query_row(args, tile.sequence, head, position), lse);
    }
    char* const to =
        static_cast<char*>(args.o) + kElementBytes * (tile.sequence.query_offset(args.o_stride_batch, args.o_stride_row) + head * args.o_stride_head + position * args.o_stride_row);
#pragma unroll
    for (i32 group = 0; group < kHeadDimV / 32; ++group) {
      u32 words[4];
#pragma unroll
      for (i32 n = 0; n < 4; ++n)
        words[n] = pack_elements(o[16 * group + 4 * n + 2 * half] * inverse, o[16 * group + 4 * n + 2 * half + 1] * inverse);
      transpose_in_quad(words);
      if (exists) st_global_v4_b32(to + 64 * group + 16 * quad, {words[0], words[1], words[2], words[3]});
    }
#pragma unroll
    for (i32 n = kHeadDimV / 32 * 4; n < kHeadDimV / 8; ++n)
      if (exists) st_global_b32(to + 16 * n + 4 * quad, pack_elements(o[4 * n + 2 * half] * inverse, o[4 * n + 2 * half + 1] * inverse));
  }
}
