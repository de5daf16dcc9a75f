// O += P V. Two neighbouring accumulators of S, packed, are one A fragment; V's rows are the rows of the B operand: transposed loads.
__device__ __forceinline__ void gemm_pv(OutputFragments& acc_o, const ScoreFragments& p, u32 v_tile${kept_parameters}) {
  const u32 lane = lane_index();
  const TileCursor keys(v_tile, lane % 16, lane / 16);
#pragma unroll
  for (i32 k = 0; k < kKeyTiles / 2; ++k) {
    u32 a[kRowTiles][4];
#pragma unroll
    for (i32 t = 0; t < kRowTiles; ++t) {
#pragma unroll
      for (i32 i = 0; i < 4; ++i) a[t][i] = pack_elements(p[t][2 * k + i / 2][2 * (i % 2)], p[t][2 * k + i / 2][2 * (i % 2) + 1]);
//% if dropout
      const KeptElements kept = dropout[t].of_keys(args, block * (kBlockKv / 16) + k);
#pragma unroll
      for (i32 i = 0; i < 4; ++i) a[t][i] = kept.of_pair(a[t][i], i / 2, i % 2);
//% end
    }
#pragma unroll
    for (i32 n = 0; n + 1 < kChunks; n += 2) {
      u32 b[4];
      ldmatrix_x4_trans(b, keys.at(16 * k, n));
#pragma unroll
      for (i32 t = 0; t < kRowTiles; ++t) {
        mma_k16(acc_o[t][n], a[t], b[0], b[1]);
        mma_k16(acc_o[t][n + 1], a[t], b[2], b[3]);
      }
    }
    if (kDimTail) {
      u32 b[2];
      ldmatrix_x2_trans(b, v_tile + tile_offset(16 * k + lane % 16, kChunks - 1));
#pragma unroll
      for (i32 t = 0; t < kRowTiles; ++t) mma_k16(acc_o[t][kChunks - 1], a[t], b[0], b[1]);
    }
  }
}
