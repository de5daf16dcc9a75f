// head counts as workspaces have them, where it has `blocks` tiles, of which the sequence's begin with number `first_block`. gradient points to the
// sequence's first row of that head, of `rows` that are row_bytes apart.
__device__ __forceinline__ void convert(const float* all_sums, float scale, char* gradient, i64 row_bytes, i64 head, i32 tile, i32 rows, i32 first_block, i32 blocks) {
  const i32 lane = lane_index();
  for (i32 i = warp_index(); i < ${convert_units}; i += ${convert_warps}) {
    const i32 first_row = tile * kTileRows + i / kParts * 16, first_chunk = i % kParts * kChunksAtOnce;
    const float* sums = all_sums + sums_place(head, blocks * kTileRows, first_block * kTileRows + first_row, first_chunk);
    u32 upper[4] = {}, lower[4] = {};
#pragma unroll
    for (i32 j = 0; j < kChunksAtOnce; ++j) {
      if (kChunks % kChunksAtOnce != 0 && first_chunk + j >= kChunks) break;
      const Vec4F32 acc = ${load_sums}(sums + j * kSumsOfFragment);
      upper[j] = pack_elements(scale * acc.x, scale * acc.y);
      lower[j] = pack_elements(scale * acc.z, scale * acc.w);
    }
    transpose_in_quad(upper);
    transpose_in_quad(lower);
    const i32 chunk = first_chunk + lane % 4, row = first_row + lane / 4;
    if (kChunks % kChunksAtOnce != 0 && chunk >= kChunks) continue;
    char* to = gradient + row * row_bytes + 16 * chunk;
    if (row < rows) store_chunk(to, Vec4{upper[0], upper[1], upper[2], upper[3]});
    if (row + 8 < rows) store_chunk(to + 8 * row_bytes, Vec4{lower[0], lower[1], lower[2], lower[3]});
  }
}
