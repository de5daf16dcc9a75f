// Pᵀ and dSᵀ of a block in shared memory, where warps need what others have computed: rows are keys, kBlockQ queries long. Chunks are permuted
// as in tile/swizzle.
__device__ __forceinline__ u32 score_offset(u32 row, u32 chunk) {
  return row * kScoreRowBytes + ((chunk ^ ((row >> kScoreSwizzleShift) & kScoreSwizzleMask)) << 4);
}

// first_key, first_query: the warp's, in the tile.
__device__ __forceinline__ void put_scores(u32 tile, i32 first_key, i32 first_query, const ScoreFragments& scores) {
  const u32 lane = lane_index();
#pragma unroll
  for (i32 t = 0; t < kRowTiles; ++t) {
#pragma unroll
    for (i32 n = 0; n < kKeyTiles; ++n) {
#pragma unroll
      for (i32 half = 0; half < 2; ++half)
        st_shared_b32(tile + score_offset(first_key + 16 * t + 8 * half + lane / 4, first_query / 8 + n) + lane % 4 * 4,
                      pack_elements(scores[t][n][2 * half], scores[t][n][2 * half + 1]));
    }
  }
}

// As A operand of dV and dK: keys are its rows.
struct ScoresOfKeys {
  u32 tile;
  i32 first_key;
  __device__ __forceinline__ void step(u32 (&a)[4], i32 t, i32 k) const {
    ldmatrix_x4(a, tile + score_offset(first_key + 16 * t + lane_index() % 16, 2 * k + lane_index() / 16));
  }
};

// As A operand of dQ: queries are its rows.
struct ScoresOfQueries {
  u32 tile;
  i32 first_query;
  __device__ __forceinline__ void step(u32 (&a)[4], i32 t, i32 k) const {
    const u32 lane = lane_index();
    ldmatrix_x4_trans(a, tile + score_offset(16 * k + lane / 16 * 8 + lane % 8, first_query / 8 + 2 * t + lane / 8 % 2));
  }
};
