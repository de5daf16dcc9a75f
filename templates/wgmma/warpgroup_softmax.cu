// Online softmax of a warpgroup's rows; a thread holds two, 8 apart, and shares each with the other lanes of its quad. P is
// exp2(c s - c m - kHeadroom) with the row's m. What O must be multiplied by when m moves is kept until the product that is under way has landed.
struct OnlineSoftmax {
  // Rounding c m changes the exponents of a row by up to 2^-24 |c m|. From here on m is subtracted from the scores before they are multiplied.
  static constexpr float kLargeExponent = 0x1p12f;

  float scale_log2;  // c
  float row_max[2];  // m; -inf only while a row has seen no key
  float row_sum[2];  // this thread's share
  float scale[2];    // of O, if must_scale
  bool must_scale;

  // -c m - kHeadroom of both rows.
  template <bool kMasked>
  __device__ __forceinline__ void find_offsets(float (&offset)[2]) const {
#pragma unroll
    for (i32 half = 0; half < 2; ++half) {
      const float m = finite_row_max<kMasked>(row_max[half]);
      offset[half] = kHeadroom == 0 ? -m * scale_log2 : fma_rn_f32(-m, scale_log2, -kHeadroom);
    }
  }
  __device__ __forceinline__ static bool is_large(const float (&offset)[2]) { return (abs_f32(offset[0]) >= kLargeExponent) | (abs_f32(offset[1]) >= kLargeExponent); }

  // Takes m from the offsets of rows where it is large, and subtracts it from their scores instead. Those of other rows of the warp stay as they are.
  __device__ __forceinline__ void subtract_large_row_max(ScoreFragments& s, float (&offset)[2]) const {
    if (!vote_sync_any(is_large(offset))) return;
    float m[2];
#pragma unroll
    for (i32 half = 0; half < 2; ++half) {
      const bool large = abs_f32(offset[half]) >= kLargeExponent;
      m[half] = large ? row_max[half] : 0;
      if (large) offset[half] = -kHeadroom;
    }
#pragma unroll
    for (i32 i = 0; i < kBlockKv / 2; ++i) s[i] -= m[i / 2 % 2];
  }

  // Puts P in the place of S, and adds it to this thread's row sums.
  __device__ __forceinline__ void exponentiate(ScoreFragments& s, const float (&offset)[2], float (&sum)[2]) const {
    float sums[4] = {};  // two sums of a row: shorter chains
#pragma unroll
    for (i32 i = 0; i < kBlockKv / 2; ++i) {
      const i32 half = i / 2 % 2;
      s[i] = exponential(i, s[i], scale_log2, offset[half]);
      sums[half + 2 * (i % 2)] += s[i];
    }
    sum[0] = sums[0] + sums[2];
    sum[1] = sums[1] + sums[3];
  }

  // The largest of this thread's scores of each row, and of the quad's.
  __device__ __forceinline__ static void largest_of_thread(const ScoreFragments& s, float (&largest)[2]) {
    float m[4] = {s[0], s[2], s[1], s[3]};
#pragma unroll
    for (i32 i = 4; i < kBlockKv / 2; ++i) m[i / 2 % 2 + 2 * (i % 2)] = max_f32(m[i / 2 % 2 + 2 * (i % 2)], s[i]);
    largest[0] = max_f32(m[0], m[2]);
    largest[1] = max_f32(m[1], m[3]);
  }
  __device__ __forceinline__ static void largest_of_quad(float (&largest)[2]) {
#pragma unroll
    for (i32 half = 0; half < 2; ++half) {
      largest[half] = max_f32(largest[half], shfl_sync_bfly_f32<1>(largest[half]));
      largest[half] = max_f32(largest[half], shfl_sync_bfly_f32<2>(largest[half]));
    }
  }

  // Raises row_max to at least `to`, rescales the sums, and marks O for rescaling.
  template <bool kMasked>
  __device__ __forceinline__ void raise_row_max(const float (&to)[2]) {
#pragma unroll
    for (i32 half = 0; half < 2; ++half) {
      const float old = row_max[half];
      row_max[half] = max_f32(old, to[half]);
      scale[half] = ex2_approx_ftz_f32((old - finite_row_max<kMasked>(row_max[half])) * scale_log2);
      row_sum[half] *= scale[half];
    }
    must_scale = true;
  }

  __device__ __forceinline__ void rescale(OutputFragments& o) const {
    if (!must_scale) return;
#pragma unroll
    for (i32 i = 0; i < kHeadDimV / 2; ++i) o[i] *= scale[i / 2 % 2];
  }

  // The logarithm that a sum of P would have with kHeadroom of 0.
  __device__ __forceinline__ static float log2_without_headroom(float sum) {
    return kHeadroom == 0 ? lg2_approx_ftz_f32(sum) : lg2_approx_ftz_f32(sum) + kHeadroom;
  }

  // A row that has seen no key yet has only scores of -inf: any finite row_max makes their P zero.
  template <bool kMasked>
  __device__ __forceinline__ static float finite_row_max(float m) {
    return kMasked && m == negative_infinity() ? 0 : m;
  }
};
