// What a query's keys share: P = exp2(c s - lse_log2), dS = P (dP - delta). A query that sees nothing, or does not exist, has an LSE of
// +inf here: its P is 0.
struct QueryStatistics {
  float lse_log2, delta;

  // head: of the query, in all batch entries.
  __device__ __forceinline__ static QueryStatistics load(const Arguments& args, i64 head, i32 query) {
    const i64 row = head * args.seq_q + query;
    const float lse = query < args.seq_q ? ld_global_f32(args.lse + row) : negative_infinity();
    if (lse == negative_infinity()) return {-negative_infinity(), 0.0f};
    return {lse * kLog2E, ld_global_f32(args.delta + row)};
  }
  __device__ __forceinline__ float probability(float score, float scale_log2) const {
    return ex2_approx_ftz_f32(fma_rn_f32(score, scale_log2, -lse_log2));
  }
};
