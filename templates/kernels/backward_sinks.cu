// Computes the gradient of each query head's sink from LSE and what another kernel has left of each query:
//
//   dsink = -Σ exp(sink - LSE)·delta     over all queries of the head, in all batch entries
//
//% if packed_sequences
// A CTA has a head. The order of the sum is fixed: a lane adds the queries of its warp's blocks that are its own, then the CTA what its threads have. A query
// that has no part in the sum, as it sees nothing, not even a sink, or is none, has delta = 0; its LSE may be anything.
//% else
// A CTA has a head. The order of the sum is fixed: a thread adds every kThreads-th query, then the CTA what its threads have. A query that has no part in
// the sum, as it sees nothing, not even a sink, or is none, has delta = 0; its LSE may be anything.
//% end

//% include primitives/mma_sync

struct Arguments {
//% for argument_fields
  ${argument_fields.type} ${argument_fields.name};
//% end
};
constexpr u32 kArgumentBytes = ${argument_bytes};

constexpr i32 kRows = ${rows_per_tile}, kThreads = ${threads}, kWarps = kThreads / kWarpSize;
//% if !packed_sequences
constexpr i32 kAtOnce = 8;  // queries of a thread whose loads are under way together
//% end
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

__device__ __forceinline__ float with_query(float sum, float sink, float lse, float delta) {
  // LSE is the sink itself where that is all: the difference is exact.
  const float p = delta != 0 ? ex2_approx_ftz_f32((sink - lse) * kLog2E) : 0.0f;
  return fma_rn_f32(-p, delta, sum);
}

extern "C" __global__ void __launch_bounds__(kThreads) ${entry}(const __grid_constant__ Arguments args) {
//% if waits_first
  griddepcontrol_wait();
//% end
  const i32 head = static_cast<i32>(block_index());
  const u32 warp = warp_index(), lane = lane_index(), shared = shared_base();
  const float sink = ld_global_f32(args.sinks + head);
//% if packed_sequences
  // A warp takes one block of queries after the other, of all sequences.
  float sum = 0;
  for (i32 block = static_cast<i32>(warp); block < args.query_tiles; block += static_cast<i32>(kWarps)) {
    const TileOfSequence found(args.cu_seqlens_q, args.batch, args.seq_q, block, kRows);
    const Sequence sequence(args, found.batch);
    const i32 first_query = found.tile * kRows, left = query_count(args, sequence) - first_query, rows = left < kRows ? left : kRows;
    const float* const statistics = args.statistics + 2 * kRows * (static_cast<i64>(head) * args.query_tiles + block);
    for (i32 row = static_cast<i32>(lane); row < rows; row += kWarpSize)
      sum = with_query(sum, sink, ld_global_f32(args.lse + packed_query_row(args, sequence, head, first_query + row)), delta_of(statistics, row));
  }
//% else
  // Queries of all batch entries, one after the other: as many loads as possible are under way together.
  const u32 stored = static_cast<u32>(stored_queries(args)), batch_step = kThreads / stored, query_step = kThreads % stored;
  u32 batch = thread_index() / stored, query = thread_index() % stored;
  float sum = 0;
  while (batch < static_cast<u32>(args.batch)) {
    float lse[kAtOnce], delta[kAtOnce];
#pragma unroll
    for (i32 i = 0; i < kAtOnce; ++i) {
      lse[i] = delta[i] = 0;
      if (batch < static_cast<u32>(args.batch)) {
        const i64 head_of_all = static_cast<i64>(batch) * args.heads_q + head;
        lse[i] = ld_global_f32(args.lse + head_of_all * stored + query);
        delta[i] = delta_of(args.statistics + 2 * kRows * (head_of_all * args.query_tiles + query / kRows), static_cast<i32>(query % kRows));
      }
      query += query_step;
      batch += batch_step;
      if (query >= stored) {
        query -= stored;
        ++batch;
      }
    }
#pragma unroll
    for (i32 i = 0; i < kAtOnce; ++i) sum = with_query(sum, sink, lse[i], delta[i]);
  }
//% end
  sum = warp_sum(sum);
  if (lane == 0) st_shared_b32(shared + kFloat * warp, f32_to_bits(sum));
  bar_sync();
  if (warp != 0) return;
  sum = warp_sum(lane < kWarps ? bits_to_f32(ld_shared_b32(shared + kFloat * lane)) : 0.0f);
  if (lane == 0) st_global_f32(args.d_sinks + head, sum${per_share});
//% if waits_last
  griddepcontrol_wait();  // a launch ends no earlier than the one before it, beside which this one has run
//% end
}
//% include primitives/entry/${target}
