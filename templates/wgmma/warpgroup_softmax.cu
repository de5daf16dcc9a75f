// Online softmax of a warpgroup's rows; a thread holds two, 8 apart, and shares each with the other lanes of its quad. P is
// exp2(c s - c m - kHeadroom) with the row's m. What O must be multiplied by when m moves is kept until the product that is under way has landed.
struct OnlineSoftmax {
  // Rounding c m changes the exponents of a row by up to 2^-24 |c m|. From here on scores have m subtracted before they are multiplied.
  static constexpr float kLargeExponent = 0x1p12f;

  float scale_log2;  // c
  float row_max[2];  // m; -inf only while a row has seen no key
  float row_sum[2];  // this thread's share
  float scale[2];    // of O, if must_scale
  bool must_scale;
  bool has_large_exponents;  // whether a row of the warp has

  // Puts P in the place of S, and adds it to this thread's row sums.
  template <bool kMasked>
  __device__ __forceinline__ void exponentiate(ScoreFragments& s, float (&sum)[2]) const {
    float negative_max[2], sums[4] = {};  // two sums of a row: shorter chains
#pragma unroll
    for (i32 half = 0; half < 2; ++half) {
      const float m = finite_row_max<kMasked>(row_max[half]);
      negative_max[half] = kHeadroom == 0 ? -m * scale_log2 : fma_rn_f32(-m, scale_log2, -kHeadroom);
    }
    if (has_large_exponents) subtract_row_max(s, negative_max);
#pragma unroll
    for (i32 i = 0; i < kBlockKv / 2; ++i) {
      const i32 half = i / 2 % 2;
      s[i] = exponential(i, s[i], scale_log2, negative_max[half]);
      sums[half + 2 * (i % 2)] += s[i];
    }
    sum[0] = sums[0] + sums[2];
    sum[1] = sums[1] + sums[3];
  }

  // To be called whenever row_max has changed.
  __device__ __forceinline__ void look_for_large_exponents() {
    has_large_exponents = vote_sync_any(has_large_exponent(0) | has_large_exponent(1));
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
    for (i32 i = 0; i < kHeadDim / 2; ++i) o[i] *= scale[i / 2 % 2];
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

 private:
  __device__ __forceinline__ bool has_large_exponent(i32 half) const { return abs_f32(finite_row_max<true>(row_max[half]) * scale_log2) >= kLargeExponent; }

  // Of rows with large exponents, which then have no offset but kHeadroom. Other rows of the warp stay as they are.
  __device__ __forceinline__ void subtract_row_max(ScoreFragments& s, float (&negative_max)[2]) const {
    float m[2];
#pragma unroll
    for (i32 half = 0; half < 2; ++half) {
      const bool large = has_large_exponent(half);
      m[half] = large ? row_max[half] : 0;
      if (large) negative_max[half] = -kHeadroom;
    }
#pragma unroll
    for (i32 i = 0; i < kBlockKv / 2; ++i) s[i] -= m[i / 2 % 2];
  }
};
