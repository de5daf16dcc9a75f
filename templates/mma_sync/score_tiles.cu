// Pᵀ and dSᵀ of a block in shared memory, where warps need what others have computed: rows are keys, kBlockQ queries long.
using ScoreRows = SwizzledRows<kElementBytes * kBlockQ, kScoreSwizzleMask, kScoreSwizzleShift>;

// first_key and first_query are the warp's first ones in the tile.
__device__ __forceinline__ void put_scores(u32 tile, i32 first_key, i32 first_query, const ScoreFragments& scores) {
  const u32 lane = lane_index();
  const ScoreRows::Cursor place(tile + lane % 4 * 4, first_key + lane / 4, first_query / 8);
#pragma unroll
  for (i32 t = 0; t < kRowTiles; ++t) {
#pragma unroll
    for (i32 n = 0; n < kKeyTiles; ++n) {
#pragma unroll
      for (i32 half = 0; half < 2; ++half)
        st_shared_b32(place.at_reached<ScoreRows::kReached<kKeyTiles>>(16 * t + 8 * half, n),
                      pack_elements(scores[t][n][2 * half], scores[t][n][2 * half + 1]));
    }
  }
}

// The A operand of dV and dK: keys are its rows.
struct ScoresOfKeys {
  ScoreRows::Cursor place;
  __device__ __forceinline__ ScoresOfKeys(u32 tile, i32 first_key) : place(tile, first_key + lane_index() % 16, lane_index() / 16) {}
  __device__ __forceinline__ void step(u32 (&a)[4], i32 t, i32 k) const { ldmatrix_x4(a, place.at(16 * t, 2 * k)); }
};

//% if query_sums
// The A operand of dQ: queries are its rows.
struct ScoresOfQueries {
  ScoreRows::Cursor place;
  __device__ __forceinline__ ScoresOfQueries(u32 tile, i32 first_query)
      : place(tile, lane_index() / 16 * 8 + lane_index() % 8, first_query / 8 + lane_index() / 8 % 2) {}
  __device__ __forceinline__ void step(u32 (&a)[4], i32 t, i32 k) const {
    ldmatrix_x4_trans(a, place.at_reached<ScoreRows::kReached<kDqRows / 8>>(16 * k, 2 * t));
  }
};
//% end
