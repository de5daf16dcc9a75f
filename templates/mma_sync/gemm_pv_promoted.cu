// O += P V, where the tensor cores sum a block of keys alone, from zero, and what it gives is added to O rounded to nearest: they truncate what they
// add to an accumulator, so that the sum of a long row would come out too small. Two neighbouring accumulators of S, packed, are one A fragment; V's
// rows are the rows of the B operand: transposed loads.
__device__ __forceinline__ void gemm_pv(OutputFragments& acc_o, const ScoreFragments& p, u32 v_tile${kept_parameters}) {
  constexpr i32 kKeySteps = kKeyTiles / 2;
  const u32 lane = lane_index();
  const TileCursor keys(v_tile, lane % 16, lane / 16);
  u32 a[kKeySteps][kRowTiles][4];
#pragma unroll
  for (i32 k = 0; k < kKeySteps; ++k) {
#pragma unroll
    for (i32 t = 0; t < kRowTiles; ++t) {
#pragma unroll
      for (i32 i = 0; i < 4; ++i) a[k][t][i] = pack_elements(p[t][2 * k + i / 2][2 * (i % 2)], p[t][2 * k + i / 2][2 * (i % 2) + 1]);
//% if dropout
      const KeptElements kept = dropout[t].of_keys(args, block * (kBlockKv / 16) + k);
#pragma unroll
      for (i32 i = 0; i < 4; ++i) a[k][t][i] = kept.of_pair(a[k][t][i], i / 2, i % 2);
//% end
    }
  }
#pragma unroll
  for (i32 n = 0; n < kChunks; n += 2) {
    const bool pair = n + 1 < kChunks;
    float sums[kRowTiles][2][4] = {};
#pragma unroll
    for (i32 k = 0; k < kKeySteps; ++k) {
      u32 b[4] = {};
      if (pair) {
        ldmatrix_x4_trans(b, keys.at(16 * k, n));
      } else {
        u32 last[2];
        ldmatrix_x2_trans(last, v_tile + tile_offset(16 * k + lane % 16, n));
        b[0] = last[0];
        b[1] = last[1];
      }
#pragma unroll
      for (i32 t = 0; t < kRowTiles; ++t) {
        mma_k16(sums[t][0], a[k][t], b[0], b[1]);
        if (pair) mma_k16(sums[t][1], a[k][t], b[2], b[3]);
      }
    }
#pragma unroll
    for (i32 t = 0; t < kRowTiles; ++t) {
#pragma unroll
      for (i32 i = 0; i < 4; ++i) {
        acc_o[t][n][i] += sums[t][0][i];
        if (pair) acc_o[t][n + 1][i] += sums[t][1][i];
      }
    }
  }
}
