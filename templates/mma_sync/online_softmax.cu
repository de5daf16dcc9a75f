// Online softmax of the warp's rows. A thread holds two rows of each m16 tile (row l / 4 and the one 8 below); the four lanes of a quad share
// a row. P = exp2(c s - c m) with the row's maximum m or, with kRescaleThreshold, one that is less than that
// many powers of two below it. m is -inf only while a row has seen no key.
struct OnlineSoftmax {
  // Rounding c m changes the exponents of a row by up to 2^-24 |c m|. From here on scores have m subtracted before they are multiplied.
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
    float largest[kRowTiles][2];
#pragma unroll
    for (i32 i = 0; i < 2 * kRowTiles; ++i) largest[i / 2][i % 2] = largest_score(s, i / 2, i % 2);
    if (must_rescale(largest)) {
#pragma unroll
      for (i32 i = 0; i < 2 * kRowTiles; ++i) raise_row_max<kMasked>(largest[i / 2][i % 2], acc_o, i / 2, i % 2);
    }
    float offset[kRowTiles][2];  // -c m
    bool large = false;
#pragma unroll
    for (i32 i = 0; i < 2 * kRowTiles; ++i) {
      offset[i / 2][i % 2] = -finite_row_max<kMasked>(row_max[i / 2][i % 2]) * softmax_scale_log2;
      large |= abs_f32(offset[i / 2][i % 2]) >= kLargeExponent;
    }
    if (vote_sync_any(large)) {
#pragma unroll
      for (i32 i = 0; i < 2 * kRowTiles; ++i) subtract_row_max(s, offset[i / 2][i % 2], i / 2, i % 2);
    }
#pragma unroll
    for (i32 i = 0; i < 2 * kRowTiles; ++i) exponentiate(s, offset[i / 2][i % 2], i / 2, i % 2);
  }

  // Sums over the quads; O = O / l. A row that has seen no key keeps its zeros; a NaN stays one.
  __device__ __forceinline__ void normalize(OutputFragments& acc_o) {
#pragma unroll
    for (i32 i = 0; i < 2 * kRowTiles; ++i) {
      const i32 t = i / 2, half = i % 2;
      float& sum = row_sum[t][half];
      sum += shfl_sync_bfly_f32<1>(sum);
      sum += shfl_sync_bfly_f32<2>(sum);
      const float inverse = sum != 0 ? rcp_approx_ftz_f32(sum) : 0;
#pragma unroll
      for (i32 n = 0; n < kChunks; ++n) {
        acc_o[t][n][2 * half] *= inverse;
        acc_o[t][n][2 * half + 1] *= inverse;
      }
    }
  }

  // LSE = scale m + ln l, after normalize().
  __device__ __forceinline__ float lse(float softmax_scale, i32 t, i32 half) const {
    constexpr float kLn2 = 0.693147180559945309f;
    const float sum = row_sum[t][half];
    return sum != 0 ? fma_rn_f32(row_max[t][half], softmax_scale, lg2_approx_ftz_f32(sum) * kLn2) : negative_infinity();
  }

 private:
  __device__ __forceinline__ float largest_score(const ScoreFragments& s, i32 t, i32 half) const {
    float m = row_max[t][half];
#pragma unroll
    for (i32 n = 0; n < kKeyTiles; ++n) m = max_f32(m, max_f32(s[t][n][2 * half], s[t][n][2 * half + 1]));
    m = max_f32(m, shfl_sync_bfly_f32<1>(m));
    return max_f32(m, shfl_sync_bfly_f32<2>(m));
  }

  // One answer for the warp. -inf - -inf is NaN and compares false.
  __device__ __forceinline__ bool must_rescale(const float (&largest)[kRowTiles][2]) const {
    if (kRescaleThreshold == 0) return true;
    bool grown = false;
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

  // Of a row with large exponents, which then has no offset. Other rows of the warp stay as they are.
  __device__ __forceinline__ void subtract_row_max(ScoreFragments& s, float& offset, i32 t, i32 half) const {
    const bool large = abs_f32(offset) >= kLargeExponent;
    const float m = large ? row_max[t][half] : 0;
    if (large) offset = 0;
#pragma unroll
    for (i32 n = 0; n < kKeyTiles; ++n) {
      s[t][n][2 * half] -= m;
      s[t][n][2 * half + 1] -= m;
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
