// What a row of queries comes to when all its keys have been seen, where its head has a sink: one more score, which counts in the sum of exponentials
// and has no value. The sum is taken beside the larger one of the row's maximum and the sink, so that neither overflows. A row that has seen no key has the
// sink alone.
struct RowEnd {
  float row_max, unit, sink, sum;  // unit: what scores are multiples of
  float scale;  // of the exponentials of scores, which were taken beside the row's maximum
  bool above;   // whether the sink is above it

  __device__ __forceinline__ RowEnd(const Arguments& args, i32 head, float row_max, float sum_of_scores) : row_max(row_max), unit(${score_unit}), sink(ld_global_f32(args.sinks + head)) {
    constexpr float kLog2E = 1.44269504088896340736f;
    // How far the sink is above the maximum, in powers of two; rounded once, whatever the size of both. Without a key the maximum may be anything.
    const float over = sum_of_scores != 0 ? fma_rn_f32(-row_max, unit, sink) * kLog2E : -negative_infinity();
    above = over > 0;
    scale = above ? ex2_approx_ftz_f32(-over) : 1.0f;
    sum = fma_rn_f32(sum_of_scores, scale, ex2_approx_ftz_f32((above ? 0.0f : over) - kHeadroom));
  }

  // What O is multiplied by. A NaN stays one.
  __device__ __forceinline__ float inverse() const { return scale * rcp_approx_ftz_f32(sum); }
  // LSE, from what the sum's logarithm is without kHeadroom.
  __device__ __forceinline__ float lse(float log_of_sum) const { return above ? sink + log_of_sum : fma_rn_f32(row_max, unit, log_of_sum); }
};
