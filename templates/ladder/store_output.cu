// O leaves through the warp's own rows of a tile of shared memory, so that global stores are whole chunks of a row. `to`: the warp's first row;
// `rows`: of the warp's, how many exist.
__device__ __forceinline__ void store_output(char* to, i64 row_bytes, i32 rows, u32 tile, i32 warp_row, const OutputFragments& acc_o) {
  const u32 lane = lane_index();
  bar_warp_sync();
#pragma unroll
  for (i32 n = 0; n < kChunks; ++n) {
#pragma unroll
    for (i32 half = 0; half < 2; ++half)
      st_shared_b32(tile + tile_offset(warp_row + 8 * half + lane / 4, n) + lane % 4 * 4,
                    pack_elements(acc_o[0][n][2 * half], acc_o[0][n][2 * half + 1]));
  }
  bar_warp_sync();
  store_tile<kWarpRows, false, kWarpSize>(to, tile + warp_row * kRowBytes, row_bytes, rows, lane);
}
