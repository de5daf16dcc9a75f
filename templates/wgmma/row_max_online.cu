// row_max is the largest score so far or, with kRescaleThreshold, one less than that many powers of two below it.
struct Softmax : OnlineSoftmax {
  template <bool kMasked>
  __device__ __forceinline__ void first(ScoreFragments& s) {
    largest_scores(s, row_max);
    exponentiate<kMasked>(s, row_sum);
  }

  template <bool kMasked>
  __device__ __forceinline__ void update(ScoreFragments& s, const ScoreSource&) {
    float largest[2], sum[2];
    largest_scores(s, largest);
    must_scale = false;
    if (must_raise(largest)) raise_row_max<kMasked>(largest);
    exponentiate<kMasked>(s, sum);
    row_sum[0] += sum[0];
    row_sum[1] += sum[1];
  }

  __device__ __forceinline__ void follow() {}

 private:
  // One answer for the warp. -inf - -inf is NaN and compares false.
  __device__ __forceinline__ bool must_raise(const float (&largest)[2]) const {
    if (kRescaleThreshold == 0) return true;
    return vote_sync_any((largest[0] - row_max[0]) * scale_log2 > kRescaleThreshold || (largest[1] - row_max[1]) * scale_log2 > kRescaleThreshold);
  }
};
