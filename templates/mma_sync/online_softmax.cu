// Online softmax of the warp's rows. A thread holds two rows of each m16 tile (row l / 4 and the one 8 below); the four lanes of a quad share
// a row. P = exp2(c s - c m) with the row's maximum m or, with kRescaleThreshold, one that is less than that
// many powers of two below it. m is -inf only while a row has seen no key.
struct OnlineSoftmax {
  // Rounding c m changes the exponents of a row by up to 2^-24 |c m|. From here on m is subtracted from the scores before they are multiplied.
  static constexpr float kLargeExponent = 0x1p12f;

  float softmax_scale_log2;  // c
  float row_max[kRowTiles][2];
  float row_sum[kRowTiles][2];  // this thread's share

  __device__ __forceinline__ explicit OnlineSoftmax(float scale_log2) : softmax_scale_log2(scale_log2) {
#pragma unroll
    for (i32 i = 0; i < 2 * kRowTiles; ++i) {
      row_max[i / 2][i % 2] = negative_infinity();
      row_sum[i / 2][i % 2] = 0;
    }
  }

  // Turns scores into P, and brings O and the sums to the new row_max.
  template <bool kMasked>
  __device__ __forceinline__ void update(ScoreFragments& s, OutputFragments& acc_o) {
    float largest[kRowTiles][2], offset[kRowTiles][2];
    find_offsets<kMasked>(offset);
#pragma unroll
    for (i32 i = 0; i < 2 * kRowTiles; ++i) largest[i / 2][i % 2] = largest_score(s, i / 2, i % 2);
    if (must_rescale(largest, offset)) {
#pragma unroll
      for (i32 i = 0; i < 2 * kRowTiles; ++i) raise_row_max<kMasked>(largest[i / 2][i % 2], acc_o, i / 2, i % 2);
      find_offsets<kMasked>(offset);
      subtract_large_row_max(s, offset);
    }
#pragma unroll
    for (i32 i = 0; i < 2 * kRowTiles; ++i) exponentiate(s, offset[i / 2][i % 2], i / 2, i % 2);
  }

//% if invariant
  // O = O / l. A row that has seen no key keeps its zeros; a NaN stays one.
//% else
  // Sums over the quads; O = O / l. A row that has seen no key keeps its zeros; a NaN stays one.
//% end
//% if sink
  // The sink of the row's head, head_of(t, half), counts in l.
  template <typename HeadOf>
  __device__ __forceinline__ void normalize(OutputFragments& acc_o, const Arguments& args, const HeadOf& head_of) {
//% else
  __device__ __forceinline__ void normalize(OutputFragments& acc_o${args_of_share}) {
//% end
#pragma unroll
    for (i32 i = 0; i < 2 * kRowTiles; ++i) {
      const i32 t = i / 2, half = i % 2;
      float& sum = row_sum[t][half];
//% if !invariant
      sum += shfl_sync_bfly_f32<1>(sum);
      sum += shfl_sync_bfly_f32<2>(sum);
//% end
//% if sink
      const float inverse = RowEnd(args, head_of(t, half), row_max[t][half], sum).inverse()${per_share};
//% else
      const float inverse = sum != 0 ? rcp_approx_ftz_f32(sum)${per_share} : 0;
//% end
#pragma unroll
      for (i32 n = 0; n < kChunks; ++n) {
        acc_o[t][n][2 * half] *= inverse;
        acc_o[t][n][2 * half + 1] *= inverse;
      }
    }
  }
//% if invariant

  // Sums over the quads: once, when all keys of a part have been seen.
  __device__ __forceinline__ void add_lanes() {
#pragma unroll
    for (i32 i = 0; i < 2 * kRowTiles; ++i) {
      float& sum = row_sum[i / 2][i % 2];
      sum += shfl_sync_bfly_f32<1>(sum);
      sum += shfl_sync_bfly_f32<2>(sum);
    }
  }
//% end

//% if !sink
  // LSE = scale m + ln l, after normalize().
  __device__ __forceinline__ float lse(float softmax_scale, i32 t, i32 half) const {
    constexpr float kLn2 = 0.693147180559945309f;
    const float sum = row_sum[t][half];
    return sum != 0 ? fma_rn_f32(row_max[t][half], softmax_scale, lg2_approx_ftz_f32(sum) * kLn2) : negative_infinity();
  }
//% end

 private:
  __device__ __forceinline__ float largest_score(const ScoreFragments& s, i32 t, i32 half) const {
    float m = row_max[t][half];
#pragma unroll
    for (i32 n = 0; n < kKeyTiles; ++n) m = max_f32(m, max_f32(s[t][n][2 * half], s[t][n][2 * half + 1]));
    m = max_f32(m, shfl_sync_bfly_f32<1>(m));
    return max_f32(m, shfl_sync_bfly_f32<2>(m));
  }

  // One answer for the warp: whether a row's maximum has grown by so much, or a row has large exponents. -inf - -inf is NaN and compares false.
  __device__ __forceinline__ bool must_rescale(const float (&largest)[kRowTiles][2], const float (&offset)[kRowTiles][2]) const {
    if (kRescaleThreshold == 0) return true;
    bool grown = is_large(offset);
#pragma unroll
    for (i32 i = 0; i < 2 * kRowTiles; ++i)
      grown |= (largest[i / 2][i % 2] - row_max[i / 2][i % 2]) * softmax_scale_log2 > kRescaleThreshold;
    return vote_sync_any(grown);
  }

  template <bool kMasked>
  __device__ __forceinline__ void raise_row_max(float to, OutputFragments& acc_o, i32 t, i32 half) {
    const float scale = ex2_approx_ftz_f32((row_max[t][half] - finite_row_max<kMasked>(to)) * softmax_scale_log2);
    row_max[t][half] = to;
    row_sum[t][half] *= scale;
#pragma unroll
    for (i32 n = 0; n < kChunks; ++n) {
      acc_o[t][n][2 * half] *= scale;
      acc_o[t][n][2 * half + 1] *= scale;
    }
  }

  // -c m of all rows.
  template <bool kMasked>
  __device__ __forceinline__ void find_offsets(float (&offset)[kRowTiles][2]) const {
#pragma unroll
    for (i32 i = 0; i < 2 * kRowTiles; ++i) offset[i / 2][i % 2] = -finite_row_max<kMasked>(row_max[i / 2][i % 2]) * softmax_scale_log2;
  }
  __device__ __forceinline__ static bool is_large(float offset) { return abs_f32(offset) >= kLargeExponent; }
  __device__ __forceinline__ static bool is_large(const float (&offset)[kRowTiles][2]) {
    bool large = false;
#pragma unroll
    for (i32 i = 0; i < 2 * kRowTiles; ++i) large |= is_large(offset[i / 2][i % 2]);
    return large;
  }

  // Takes m from the offsets of rows where it is large, and subtracts it from their scores instead. Those of other rows of the warp stay as they are.
  __device__ __forceinline__ void subtract_large_row_max(ScoreFragments& s, float (&offset)[kRowTiles][2]) const {
    if (!vote_sync_any(is_large(offset))) return;
#pragma unroll
    for (i32 i = 0; i < 2 * kRowTiles; ++i) {
      const i32 t = i / 2, half = i % 2;
      const float m = is_large(offset[t][half]) ? row_max[t][half] : 0;
      if (is_large(offset[t][half])) offset[t][half] = 0;
#pragma unroll
      for (i32 n = 0; n < kKeyTiles; ++n) {
        s[t][n][2 * half] -= m;
        s[t][n][2 * half + 1] -= m;
      }
    }
  }

  __device__ __forceinline__ void exponentiate(ScoreFragments& s, float offset, i32 t, i32 half) {
    float sum = 0;
#pragma unroll
    for (i32 n = 0; n < kKeyTiles; ++n) {
#pragma unroll
      for (i32 e = 0; e < 2; ++e) {
        float& x = s[t][n][2 * half + e];
        x = ex2_approx_ftz_f32(fma_rn_f32(x, softmax_scale_log2, offset));
        sum += x;
      }
    }
    row_sum[t][half] += sum;
  }

  // A row that has seen no key yet has only scores of -inf: any finite row_max makes their P zero.
  template <bool kMasked>
  __device__ __forceinline__ static float finite_row_max(float m) {
    return kMasked && m == negative_infinity() ? 0 : m;
  }
};
