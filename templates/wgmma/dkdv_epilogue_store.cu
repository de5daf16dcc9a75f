// dK and dV of a tile leave as they are: no other tile has these keys.
__device__ __forceinline__ void await_key_sums(const Arguments&, const KeyTile&) {}
__device__ __forceinline__ void pass_key_sums(const Arguments&, const KeyTile&) {}

// Stores a gradient of this thread's two keys, `key` and the eighth after it. The lanes of a quad exchange words of four fragments, so that each
// lane stores 16 bytes of a row.
__device__ __forceinline__ void store_rows(char* gradient, i64 row_bytes, float scale, i32 key, i32 keys, const GradientFragments& acc) {
  const u32 quad = lane_index() % 4;
#pragma unroll
  for (i32 half = 0; half < 2; ++half) {
    const i32 row = key + 8 * half;
    const bool exists = row < keys;
    char* const to = gradient + row * row_bytes;
#pragma unroll
    for (i32 group = 0; group < kHeadDimV / 32; ++group) {
      u32 words[4];
#pragma unroll
      for (i32 n = 0; n < 4; ++n)
        words[n] = pack_elements(scale * acc[16 * group + 4 * n + 2 * half], scale * acc[16 * group + 4 * n + 2 * half + 1]);
      transpose_in_quad(words);
      if (exists) st_global_v4_b32(to + 64 * group + 16 * quad, {words[0], words[1], words[2], words[3]});
    }
#pragma unroll
    for (i32 n = kHeadDimV / 32 * 4; n < kHeadDimV / 8; ++n)
      if (exists) st_global_b32(to + 16 * n + 4 * quad, pack_elements(scale * acc[4 * n + 2 * half], scale * acc[4 * n + 2 * half + 1]));
  }
}

// first_key: of the warp's 16, in the tile.
__device__ __forceinline__ void store_dk(const Arguments& args, const KeyTile& tile, i32 first_key, const GradientFragments& dk) {
  char* const d_k = static_cast<char*>(args.d_k) + kElementBytes * (tile.sequence.key_offset(args.d_k_stride_batch, args.d_k_stride_row) +
                                                        tile.head * args.d_k_stride_head + tile.first_key * args.d_k_stride_row);
  store_rows(d_k, kElementBytes * args.d_k_stride_row, ${dk_scale}, first_key + static_cast<i32>(lane_index() / 4), tile.rows(args), dk);
}
__device__ __forceinline__ void store_dv(const Arguments& args, const KeyTile& tile, i32 first_key, const GradientFragments& dv) {
  char* const d_v = static_cast<char*>(args.d_v) + kElementBytes * (tile.sequence.key_offset(args.d_v_stride_batch, args.d_v_stride_row) +
                                                        tile.head * args.d_v_stride_head + tile.first_key * args.d_v_stride_row);
  store_rows(d_v, kElementBytes * args.d_v_stride_row, ${dv_scale}, first_key + static_cast<i32>(lane_index() / 4), tile.rows(args), dv);
}
