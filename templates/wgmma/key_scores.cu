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
//% if alibi
// The place of a thread's first key: in keys from the diagonal of this lane's first query in a block. diagonal_key: as LiveBlocks has it, of the
// warpgroup's first key; key: among the warpgroup's; block: of queries.
struct AlibiPlace {
  i32 distance;
  bool beyond;  // all keys of the warpgroup lie beyond the diagonals of all queries

  __device__ __forceinline__ AlibiPlace(i32 diagonal_key, i32 key, i32 block)
      : distance(diagonal_key - block * kBlockQ + key - static_cast<i32>(lane_index() % 4 * 2)), beyond(diagonal_key - block * kBlockQ >= kBlockQ - 1) {}
};

//% if alibi_of_pairs
// What the exponents of a thread's two keys and a block's queries lose by ALiBi, wherever the keys lie.
struct AlibiOfPairs {
  float slope, keys[2];  // keys: from the diagonal of this lane's first query

  __device__ __forceinline__ AlibiOfPairs(float slope, const AlibiPlace& place) : slope(slope), keys{static_cast<float>(place.distance), static_cast<float>(place.distance + 8)} {}
  // The gain of element i of those that a lane has of sixteen queries, from `query` on.
  __device__ __forceinline__ float gain(i32 query, i32 i) const { return -slope * abs_f32(keys[i / 2 % 2] - static_cast<float>(query + i / 4 * 8 + i % 2)); }
  __device__ __forceinline__ float exponent(float score, float scale_log2, float lse, i32 query, i32 i) const {
    return fma_rn_f32(score, scale_log2, gain(query, i)) - lse;
  }
};
//% end
//% if alibi_of_rows
// What the exponents of a thread's two keys and a block's queries lose by ALiBi where all keys lie before the diagonals of all queries, or all beyond them:
// a number of each query less one of each key.
struct AlibiOfRows {
  float slope, keys[2];  // slope: negative where the keys lie beyond

  __device__ __forceinline__ AlibiOfRows(float slope_of_head, const AlibiPlace& place) : slope(place.beyond ? -slope_of_head : slope_of_head) {
    keys[0] = slope * static_cast<float>(place.distance);
    keys[1] = slope * static_cast<float>(place.distance + 8);
  }
  __device__ __forceinline__ float exponent(float score, float scale_log2, float lse, i32 query, i32 i) const {
    return fma_rn_f32(score, scale_log2, keys[i / 2 % 2]) - fma_rn_f32(slope, static_cast<float>(query + i / 4 * 8 + i % 2), lse);
  }
};
//% end
//% if alibi_mended
// AlibiOfRows takes the distance of a key that lies beyond the diagonal of a query for negative, where others of the block do not: its scores are mended
// before. Two ways to the exponentials would take registers that the products need.
__device__ __forceinline__ void mend_scores_beyond(ScoreFragments& s, float slope, float scale_log2, const AlibiPlace& place) {
  if (place.beyond) return;
  constexpr float kLargest = 3.402823466e38f;
  const float inverse = rcp_approx_ftz_f32(scale_log2), twice = -2.0f * slope * (inverse < kLargest ? inverse : kLargest);
#pragma unroll
  for (i32 half = 0; half < 2; ++half) {
#pragma unroll
    for (i32 n = 0; n < kBlockQ / 8; ++n) {
#pragma unroll
      for (i32 e = 0; e < 2; ++e) {
        const i32 distance = place.distance + 8 * half - (8 * n + e);
        if (distance > 0) s[4 * n + 2 * half + e] = fma_rn_f32(twice, static_cast<float>(distance), s[4 * n + 2 * half + e]);
      }
    }
  }
}
//% end

//% end
//% if pair_tensors
//% if pair_tiles
//% include wgmma/pair_exponents
//% else
// What the exponents of a thread's two keys and a block's queries gain by tensors of pairs${and_alibi_words}.
struct TermsOfPairs {
  const Arguments& args;
  const Sequence& sequence;
  i32 head, query, key;  // of the thread's first element
//% if alibi
  AlibiOfPairs alibi;
//% end

  __device__ __forceinline__ float exponent(float score, float scale_log2, float lse, i32 from, i32 i) const {
    const float gain = pair_gain(args, sequence, head, query + from + i / 4 * 8 + i % 2, key + i / 2 % 2 * 8);
    // What the tensors hold may be anything where the mask hides the pair, and where the query sees nothing or does not exist.
    const bool counts = score != negative_infinity() && lse != -negative_infinity();
    return !counts ? negative_infinity() : fma_rn_f32(score, scale_log2, gain${and_alibi_gain}) - lse;
  }
};
//% end
//% end
//% if score_slope
//% if dropout
// Turns Sᵀ into Pᵀ, and, in 16 bits and ${slopes_place}, into Pᵀ times the derivative of the scores' change, of which dS is made: negative where dropout keeps
//% if slopes_shared
// nothing. Of what it keeps p is Pᵀ in 16 bits. An exponent is positive only by what rounding left of LSE: it counts as negative, so that P does not exceed 1.
//% else
// nothing. An exponent is positive only by what rounding left of LSE: it counts as negative, so that P does not exceed 1.
//% end
//% else
// Turns Sᵀ into Pᵀ, and, in 16 bits and ${slopes_place}, into Pᵀ times the derivative of the scores' change, of which dS is made. An exponent is positive
// only by what rounding left of LSE: it counts as negative, so that P does not exceed 1.
//% end
//% if exponent_terms
template <class Terms>
//% end
__device__ __forceinline__ void exponentiate(ScoreFragments& s, ${slopes_type} slopes, const ScoreFunction& score${dropout_parameters}, float scale_log2, ${lse_type} lse${terms_parameter}) {
#pragma unroll
  for (i32 k = 0; k < kQuerySteps; ++k) {
    const Vec4F32 columns = ${lse_of_k};
//% if pair_tiles
    terms.read(k);
//% end
//% if slopes_shared
    u32 words[4];
//% end
//% if dropout
    const KeptElements kept = dropout.of_queries(args, block * kQuerySteps + k);
//% end
#pragma unroll
    for (i32 i = 0; i < 4; ++i) {
      float sloped[2];
#pragma unroll
      for (i32 e = 0; e < 2; ++e) {
        float& p = s[8 * k + 2 * i + e];
        const float changed = p;
//% if exponent_terms
        p = ex2_approx_ftz_f32(-abs_f32(terms.exponent(changed, scale_log2, column_of(columns, 2 * i + e), 16 * k, 2 * i + e)));
//% else
        p = ex2_approx_ftz_f32(-abs_f32(fma_rn_f32(changed, scale_log2, -column_of(columns, 2 * i + e))));
//% end
        sloped[e] = score.slope(p, changed);
      }
//% if dropout
//% if slopes_shared
      words[i] = kept.signs_of_pair(pack_elements(sloped[0], sloped[1]), i % 2, i / 2);
//% if capped
      packed[4 * k + i] = kept.of_pair(pack_elements(s[8 * k + 2 * i], s[8 * k + 2 * i + 1]), i % 2, i / 2);
//% else
      packed[4 * k + i] = max_s16x2(words[i], 0);
//% end
//% else
      slopes[4 * k + i] = kept.signs_of_pair(pack_elements(sloped[0], sloped[1]), i % 2, i / 2);
//% end
//% else
//% if slopes_shared
      words[i] = pack_elements(sloped[0], sloped[1]);
//% else
      slopes[4 * k + i] = pack_elements(sloped[0], sloped[1]);
//% end
//% end
    }
//% if slopes_shared
    stmatrix_x4_trans(slopes + k * 16 * kPanelBytes, words);
//% end
  }
}
//% else
// Turns Sᵀ into Pᵀ. An exponent is positive only by what rounding left of LSE: it counts as negative, so that P does not exceed 1.
//% if exponent_terms
template <class Terms>
//% end
__device__ __forceinline__ void exponentiate(ScoreFragments& s, float scale_log2, ${lse_type} lse${terms_parameter}) {
#pragma unroll
  for (i32 k = 0; k < kQuerySteps; ++k) {
    const Vec4F32 columns = ${lse_of_k};
//% if pair_tiles
    terms.read(k);
//% end
#pragma unroll
//% if exponent_terms
    for (i32 i = 0; i < 8; ++i) s[8 * k + i] = ex2_approx_ftz_f32(-abs_f32(terms.exponent(s[8 * k + i], scale_log2, column_of(columns, i), 16 * k, i)));
//% else
    for (i32 i = 0; i < 8; ++i) s[8 * k + i] = ex2_approx_ftz_f32(-abs_f32(fma_rn_f32(s[8 * k + i], scale_log2, -column_of(columns, i))));
//% end
  }
}
//% end

// Scores in 16 bits.
__device__ __forceinline__ void pack_scores(PackedScores& packed, const ScoreFragments& scores) {
#pragma unroll
  for (i32 i = 0; i < kBlockQ / 4; ++i) packed[i] = pack_elements(scores[2 * i], scores[2 * i + 1]);
}

//% if dropout
//% if !slopes_shared
//% if capped
// What is kept of scores in 16 bits: the sign of `signs` is set elsewhere.
__device__ __forceinline__ void drop_scores(PackedScores& packed, const PackedScores& signs) {
#pragma unroll
  for (i32 i = 0; i < kBlockQ / 4; ++i) packed[i] &= ~prmt_b32(signs[i], signs[i], 0xbb99u);
}
//% else
// What is kept of scores in 16 bits: the sign is set elsewhere.
__device__ __forceinline__ void keep_scores(PackedScores& kept, const PackedScores& signed_scores) {
#pragma unroll
  for (i32 i = 0; i < kBlockQ / 4; ++i) kept[i] = max_s16x2(signed_scores[i], 0);
}
//% end

//% end
// P times dP less delta, where dP counts if P is positive: dropout has kept it. Times the share that is kept, as delta is.
__device__ __forceinline__ float dropped_difference(float p, float dp, float delta) { return fma_rn_f32(max_f32(p, 0), dp, -abs_f32(p) * delta); }

//% end
// Turns dPᵀ into dSᵀ = Pᵀ ∘ (dPᵀ - delta). Downwards: in 16 bits dSᵀ can take the upper half of dPᵀ's registers, so that the next scores fit
// below it.
//% if slopes_shared
// P, times the derivative of the scores' change, lies in shared memory from `slopes` on.
__device__ __forceinline__ void differentiate(ScoreFragments& dp, u32 slopes, ${delta_type} delta${dropout_scale_parameter}) {
//% else
__device__ __forceinline__ void differentiate(ScoreFragments& dp, const PackedScores& p, ${delta_type} delta${dropout_scale_parameter}) {
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
//% if dropout
      low = dropped_difference(cvt_f32_low_${dtype}(pair), low, column_of(columns, 2 * i))${per_share};
      high = dropped_difference(cvt_f32_high_${dtype}(pair), high, column_of(columns, 2 * i + 1))${per_share};
//% else
      low = cvt_f32_low_${dtype}(pair) * (low - column_of(columns, 2 * i));
      high = cvt_f32_high_${dtype}(pair) * (high - column_of(columns, 2 * i + 1));
//% end
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
