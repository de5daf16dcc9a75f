// head counts as workspaces have them, where it has `blocks` tiles, of which the sequence's begin with number `first_block`. gradient points to the
// sequence's first row of that head, of `rows` that are row_bytes apart. Each lane has a row's chunk, a column of
// a fragment: a warp takes 8 rows and four chunks at a time, and reads 64 bytes of two fragments at once.
__device__ __forceinline__ void convert(const float* all_sums, float scale, char* gradient, i64 row_bytes, i64 head, i32 tile, i32 rows, i32 first_block, i32 blocks) {
  const i32 lane = lane_index(), row_of_fragment = lane % 8;
  const float* sums = all_sums + transposed_sums_place<kTileRows>(head, blocks, first_block + tile);
  for (i32 i = warp_index(); i < kTileRows / 8 * kParts; i += kThreads / kWarpSize) {
    const i32 eight_rows = i / kParts, chunk = i % kParts * kChunksAtOnce + lane / 8, row = tile * kTileRows + 8 * eight_rows + row_of_fragment;
    if (chunk >= kChunks || row >= rows) continue;
    const float* column = sums + transposed_fragment_place<kTileRows>(chunk / 2, eight_rows) + row_of_fragment / 2 * 4 + chunk % 2 * 2 + row_of_fragment % 2;
    u32 words[4];
#pragma unroll
    for (i32 j = 0; j < 4; ++j) words[j] = pack_elements(scale * ld_global_f32(column + 32 * j), scale * ld_global_f32(column + 32 * j + 16));
    store_chunk(gradient + row * row_bytes + 16 * chunk, Vec4{words[0], words[1], words[2], words[3]});
  }
}
