// Unmasked blocks compute no maximum: P in bf16 has the exponents of fp32, so any row_max serves with which neither P nor its sums overflow.
// row_max begins as the largest score of the masked blocks, of which a row has seen at least one key, and is raised after a block whose sums
// pass kHighSum. A block that leaps beyond kLeap before that is computed anew with its maximum: rare, slow, exact.
struct Softmax : OnlineSoftmax {
  static constexpr float kHighSum = 65536, kLeap = 0x1p100f;
  float block_sum[2];  // of the last block, this thread's share
  bool high;           // whether one of the warp passed kHighSum
  bool raised;         // whether `scale` is due with the next block

  template <bool kMasked>
  __device__ __forceinline__ void first(ScoreFragments& s) {
    raised = false;
    largest_scores(s, row_max);
    exponentiate<kMasked>(s, block_sum);
    check_block_sum();
    row_sum[0] = block_sum[0];
    row_sum[1] = block_sum[1];
    high = false;
  }

  template <bool kMasked>
  __device__ __forceinline__ void update(ScoreFragments& s, const ScoreSource& source) {
    must_scale = raised;
    raised = false;
    if (kMasked) {
      float largest[2];
      largest_scores(s, largest);
      if (vote_sync_any(largest[0] > row_max[0] || largest[1] > row_max[1])) raise_row_max<true>(largest);
    }
    exponentiate<kMasked>(s, block_sum);
    if (kMasked) check_block_sum();
    high = vote_sync_any(block_sum[0] > kHighSum || block_sum[1] > kHighSum);
    // NaN is no leap that a maximum could mend, but it must not pass for a small sum either.
    if (!kMasked && high && vote_sync_any(!(block_sum[0] < kLeap) || !(block_sum[1] < kLeap))) recompute(s, source);
    row_sum[0] += block_sum[0];
    row_sum[1] += block_sum[1];
  }

  // After a block that others follow, when O has been rescaled: row_max for those.
  __device__ __forceinline__ void after_block() {
    if (!high) return;
    high = false;
#pragma unroll
    for (i32 half = 0; half < 2; ++half) {
      float largest = max_f32(block_sum[half], 1);
      largest = max_f32(largest, shfl_sync_bfly_f32<1>(largest));
      const float powers = lg2_approx_ftz_f32(max_f32(largest, shfl_sync_bfly_f32<2>(largest)));
      row_max[half] += powers / scale_log2;
      scale[half] = ex2_approx_ftz_f32(-powers);
      row_sum[half] *= scale[half];
    }
    raised = true;
  }

 private:
  __device__ __forceinline__ void check_block_sum() {
    block_sum[0] = checked_sum(block_sum[0]);
    block_sum[1] = checked_sum(block_sum[1]);
  }
  __device__ __forceinline__ void recompute(ScoreFragments& s, const ScoreSource& source) {
    source.load(s);
    float largest[2], earlier[2] = {1, 1};
    if (must_scale) {
      earlier[0] = scale[0];
      earlier[1] = scale[1];
    }
    largest_scores(s, largest);
    raise_row_max<true>(largest);
    scale[0] *= earlier[0];
    scale[1] *= earlier[1];
    exponentiate<true>(s, block_sum);
    check_block_sum();
    high = false;
  }
};
