// What all keys need to know of a query: P = exp2(c s - lse_log2), dS = P (dP - delta). A query that sees no key, or does not exist, has an LSE
// of +inf: its P is 0.
struct QueryStatistics {
  float lse_log2, delta;

  // An exponent is positive only by what rounding left of LSE: it counts as negative, so that P does not exceed 1.
  __device__ __forceinline__ float probability(float score, float scale_log2) const {
    return ex2_approx_ftz_f32(-abs_f32(fma_rn_f32(score, scale_log2, -lse_log2)));
  }
//% if exponent_terms
  // The same, where the exponent gains so much beside.
  __device__ __forceinline__ float probability(float score, float scale_log2, float gain) const {
//% if pair_tensors
    if (lse_log2 == -negative_infinity()) return 0;  // whatever the tensors hold for such a query
//% end
    return ex2_approx_ftz_f32(-abs_f32(fma_rn_f32(score, scale_log2, gain - lse_log2)));
  }
//% end
};
