// D += A B for kSteps · 16 rows of B, a tile of shared memory, and kColumns chunks of its columns, from first_chunk on. A comes as fragments of
// 16 rows and 16 columns; the tile's rows are the rows of the B operand: transposed loads.
template <i32 kSteps, i32 kTiles, i32 kColumns, class Operand>
__device__ __forceinline__ void gemm_columns(float (&acc)[kTiles][kColumns][4], const Operand& operand, u32 tile, i32 first_chunk) {
  const u32 lane = lane_index();
  constexpr bool kReached = kChunks % kColumns == 0 && TileRowsLayout::kReached<kColumns>;
  const TileCursor rows(tile, lane % 16, first_chunk + lane / 16);
  const TileCursor last(tile, lane % 16, first_chunk);
#pragma unroll
  for (i32 k = 0; k < kSteps; ++k) {
    u32 a[kTiles][4];
#pragma unroll
    for (i32 t = 0; t < kTiles; ++t) operand.step(a[t], t, k);
#pragma unroll
    for (i32 n = 0; n + 1 < kColumns; n += 2) {
      u32 b[4];
      ldmatrix_x4_trans(b, rows.at_reached<kReached>(16 * k, n));
#pragma unroll
      for (i32 t = 0; t < kTiles; ++t) {
        mma_k16(acc[t][n], a[t], b[0], b[1]);
        mma_k16(acc[t][n + 1], a[t], b[2], b[3]);
      }
    }
    if (kColumns % 2 != 0) {
      u32 b[2];
      ldmatrix_x2_trans(b, last.at_any(16 * k, kColumns - 1));
#pragma unroll
      for (i32 t = 0; t < kTiles; ++t) mma_k16(acc[t][kColumns - 1], a[t], b[0], b[1]);
    }
  }
}

// A from registers: two neighbouring accumulators of P or dS, packed, are one fragment.
struct PackedScores {
  const ScoreFragments& scores;
  __device__ __forceinline__ void step(u32 (&a)[4], i32 t, i32 k) const {
#pragma unroll
    for (i32 i = 0; i < 4; ++i)
      a[i] = pack_elements(scores[t][2 * k + i / 2][2 * (i % 2)], scores[t][2 * k + i / 2][2 * (i % 2) + 1]);
  }
};

using GradientFragments = float[kRowTiles][kPartChunks][4];

// Stores a gradient into a warp's rows of a tile of shared memory, from chunk `first_stored` on: another warp stores the chunks before it.
__device__ __forceinline__ void put_gradient(u32 tile, i32 warp_row, i32 first_chunk, i32 first_stored, float scale,
                                             const GradientFragments& acc) {
  const u32 lane = lane_index();
#pragma unroll
  for (i32 t = 0; t < kRowTiles; ++t) {
#pragma unroll
    for (i32 n = 0; n < kPartChunks; ++n) {
#pragma unroll
      for (i32 half = 0; half < 2; ++half)
        if (first_chunk + n >= first_stored)
          st_shared_b32(tile + tile_offset(warp_row + 16 * t + 8 * half + lane / 4, first_chunk + n) + lane % 4 * 4,
                        pack_elements(scale * acc[t][n][2 * half], scale * acc[t][n][2 * half + 1]));
    }
  }
}
