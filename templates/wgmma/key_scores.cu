// LSE or delta of a lane's columns among sixteen, from the statistics of a block.
__device__ __forceinline__ Vec4F32 load_columns(u32 rows, i32 sixteen) { return ld_shared_v4_f32(rows + 64 * sixteen + lane_index() % 4 * 16); }
__device__ __forceinline__ float column_of(const Vec4F32& columns, i32 i) { return i & 4 ? (i & 1 ? columns.w : columns.z) : (i & 1 ? columns.y : columns.x); }

//% if block_columns
// LSE or delta of a lane's columns in a block, to be used upwards or downwards, sixteen queries after the other. What is used first, kEarly sixteens, is
// read at once; the rest as it is used.
template <i32 kEarly, bool kUpwards>
struct BlockColumns {
  u32 rows;
  Vec4F32 early[kEarly == 0 ? 1 : kEarly];

  __device__ __forceinline__ explicit BlockColumns(u32 rows) : rows(rows) {
#pragma unroll
    for (i32 use = 0; use < kEarly; ++use) early[use] = load_columns(rows, kUpwards ? use : kQuerySteps - 1 - use);
  }
  __device__ __forceinline__ Vec4F32 of(i32 sixteen) const {
    const i32 use = kUpwards ? sixteen : kQuerySteps - 1 - sixteen;
    return use < kEarly ? early[use] : load_columns(rows, sixteen);
  }
};
using LseColumns = BlockColumns<${early_lse}, true>;
using DeltaColumns = BlockColumns<${early_delta}, false>;

//% end
//% if score_slope
// Turns Sᵀ into Pᵀ, and, in 16 bits and ${slopes_place}, into Pᵀ times the derivative of the scores' change, of which dS is made. An exponent is positive
// only by what rounding left of LSE: it counts as negative, so that P does not exceed 1.
__device__ __forceinline__ void exponentiate(ScoreFragments& s, ${slopes_type} slopes, const ScoreFunction& score, float scale_log2, ${lse_type} lse) {
#pragma unroll
  for (i32 k = 0; k < kQuerySteps; ++k) {
    const Vec4F32 columns = ${lse_of_k};
//% if slopes_shared
    u32 words[4];
//% end
#pragma unroll
    for (i32 i = 0; i < 4; ++i) {
      float sloped[2];
#pragma unroll
      for (i32 e = 0; e < 2; ++e) {
        float& p = s[8 * k + 2 * i + e];
        const float changed = p;
        p = ex2_approx_ftz_f32(-abs_f32(fma_rn_f32(changed, scale_log2, -column_of(columns, 2 * i + e))));
        sloped[e] = score.slope(p, changed);
      }
//% if slopes_shared
      words[i] = pack_elements(sloped[0], sloped[1]);
//% else
      slopes[4 * k + i] = pack_elements(sloped[0], sloped[1]);
//% end
    }
//% if slopes_shared
    stmatrix_x4_trans(slopes + k * 16 * kPanelBytes, words);
//% end
  }
}
//% else
// Turns Sᵀ into Pᵀ. An exponent is positive only by what rounding left of LSE: it counts as negative, so that P does not exceed 1.
__device__ __forceinline__ void exponentiate(ScoreFragments& s, float scale_log2, ${lse_type} lse) {
#pragma unroll
  for (i32 k = 0; k < kQuerySteps; ++k) {
    const Vec4F32 columns = ${lse_of_k};
#pragma unroll
    for (i32 i = 0; i < 8; ++i) s[8 * k + i] = ex2_approx_ftz_f32(-abs_f32(fma_rn_f32(s[8 * k + i], scale_log2, -column_of(columns, i))));
  }
}
//% end

// Scores in 16 bits.
__device__ __forceinline__ void pack_scores(PackedScores& packed, const ScoreFragments& scores) {
#pragma unroll
  for (i32 i = 0; i < kBlockQ / 4; ++i) packed[i] = pack_elements(scores[2 * i], scores[2 * i + 1]);
}

// Turns dPᵀ into dSᵀ = Pᵀ ∘ (dPᵀ - delta). Downwards: in 16 bits dSᵀ can take the upper half of dPᵀ's registers, so that the next scores fit
// below it.
//% if slopes_shared
// P, times the derivative of the scores' change, lies in shared memory from `slopes` on.
__device__ __forceinline__ void differentiate(ScoreFragments& dp, u32 slopes, ${delta_type} delta) {
//% else
__device__ __forceinline__ void differentiate(ScoreFragments& dp, const PackedScores& p, ${delta_type} delta) {
//% end
#pragma unroll
  for (i32 k = kQuerySteps - 1; k >= 0; --k) {
    const Vec4F32 columns = ${delta_of_k};
//% if slopes_shared
    u32 p[4];
    ldmatrix_x4_trans(p, slopes + k * 16 * kPanelBytes);
//% end
#pragma unroll
    for (i32 i = 0; i < 4; ++i) {
      const u32 pair = p[${pair_of_p}];
      float &low = dp[8 * k + 2 * i], &high = dp[8 * k + 2 * i + 1];
      low = cvt_f32_low_${dtype}(pair) * (low - column_of(columns, 2 * i));
      high = cvt_f32_high_${dtype}(pair) * (high - column_of(columns, 2 * i + 1));
    }
  }
}

// Sets the scores of queries that do not attend to a key to -inf. first_key: of this thread; first_query: of the block.
__device__ __forceinline__ void mask_scores(ScoreFragments& s, const Arguments& args, const Sequence& sequence, i32 first_key, i32 first_query) {
#pragma unroll
  for (i32 half = 0; half < 2; ++half) {
    const HiddenQueries hidden(args, sequence, first_key + 8 * half, first_query + static_cast<i32>(lane_index() % 4 * 2));
#pragma unroll
    for (i32 n = 0; n < kBlockQ / 8; ++n) {
#pragma unroll
      for (i32 e = 0; e < 2; ++e)
        if (hidden.has(8 * n + e)) s[4 * n + 2 * half + e] = negative_infinity();
    }
  }
}

// Where a lane puts a warp's part of dSᵀ, 16 keys from column `key` of the tile on, in a tile of dS, whose rows are queries: fragments are transposed.
__device__ __forceinline__ u32 place_of_scores(u32 tile, i32 key) {
  const u32 lane = lane_index(), byte = kElementBytes * (key + lane / 8 % 2 * 8);
  return swizzled(tile + byte / kPanelBytes * kQPanelStride + (lane / 16 * 8 + lane % 8) * kPanelBytes + byte % kPanelBytes);
}
__device__ __forceinline__ void put_scores(u32 tile, i32 key, const PackedScores& ds) {
  const u32 at = place_of_scores(tile, key);
#pragma unroll
  for (i32 k = 0; k < kQuerySteps; ++k) {
    const u32 words[4] = {ds[4 * k], ds[4 * k + 1], ds[4 * k + 2], ds[4 * k + 3]};
    stmatrix_x4_trans(at + k * 16 * kPanelBytes, words);
  }
}
