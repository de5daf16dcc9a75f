// Computes the gradient of each query head's sink from LSE and what another kernel has left of each query:
//
//   dsink = -Σ exp(sink - LSE)·delta     over all queries of the head, in all batch entries
//
// A CTA has a head. The order of the sum is fixed: a thread adds every kThreads-th query, then the CTA what its threads have. A query that sees nothing,
// not even a sink, has LSE = -inf and no part in the sum.

//% include primitives/mma_sync

struct Arguments {
//% for argument_fields
  ${argument_fields.type} ${argument_fields.name};
//% end
};
constexpr u32 kArgumentBytes = ${argument_bytes};

constexpr i32 kRows = ${rows_per_tile}, kThreads = ${threads}, kWarps = kThreads / kWarpSize;
constexpr i32 kAtOnce = 8;  // queries of a thread whose loads are under way together
constexpr u32 kFloat = sizeof(float);
constexpr float kLog2E = 1.44269504088896340736f;
static_assert(kWarps <= kWarpSize && kWarps * kFloat == ${shared_bytes});

//% include attention/sequence_${sequence}
//% include tile/delta_${statistics_order}

__device__ __forceinline__ float warp_sum(float x) {
  x += shfl_sync_bfly_f32<16>(x);
  x += shfl_sync_bfly_f32<8>(x);
  x += shfl_sync_bfly_f32<4>(x);
  x += shfl_sync_bfly_f32<2>(x);
  return x + shfl_sync_bfly_f32<1>(x);
}

extern "C" __global__ void __launch_bounds__(kThreads) ${entry}(const __grid_constant__ Arguments args) {
  const i32 head = static_cast<i32>(block_index());
  const u32 warp = warp_index(), lane = lane_index(), shared = shared_base();
  const float sink = ld_global_f32(args.sinks + head);
  float sum = 0;
  for (i32 batch = 0; batch < args.batch; ++batch) {
    const Sequence sequence(args, batch);
    const u32 queries = static_cast<u32>(query_count(args, sequence));  // steps beyond the longest leave no i32
    const float* const lse = args.lse + packed_query_row(args, sequence, head, 0);
    const float* const statistics = args.statistics + 2 * kRows * ((static_cast<i64>(batch) * args.heads_q + head) * args.query_tiles);
    for (u32 first = thread_index(); first < queries; first += kAtOnce * kThreads) {
      float lse_of_query[kAtOnce], delta[kAtOnce];
#pragma unroll
      for (i32 i = 0; i < kAtOnce; ++i) {
        const u32 query = first + i * kThreads;
        lse_of_query[i] = query < queries ? ld_global_f32(lse + query) : negative_infinity();
        delta[i] = query < queries ? delta_of(statistics + 2 * kRows * static_cast<i64>(query / kRows), static_cast<i32>(query % kRows)) : 0.0f;
      }
#pragma unroll
      for (i32 i = 0; i < kAtOnce; ++i) {
        // LSE is the sink itself where that is all: the difference is exact.
        const float p = lse_of_query[i] != negative_infinity() ? ex2_approx_ftz_f32((sink - lse_of_query[i]) * kLog2E) : 0.0f;
        sum = fma_rn_f32(-p, delta[i], sum);
      }
    }
  }
  sum = warp_sum(sum);
  if (lane == 0) st_shared_b32(shared + kFloat * warp, f32_to_bits(sum));
  bar_sync();
  if (warp != 0) return;
  sum = warp_sum(lane < kWarps ? bits_to_f32(ld_shared_b32(shared + kFloat * lane)) : 0.0f);
  if (lane == 0) st_global_f32(args.d_sinks + head, sum);
}
//% include primitives/entry/${target}
