// Computes for each query what all its keys need for their gradients:
//
//   delta = rowsum(dO ∘ O) - dLSE,   and LSE·log2(e)
//
//% if dropout
// delta is stored times the share that dropout keeps, as is dS until gradients leave.
//
//% end
// A query that sees no key, and a row that pads a block of queries, gets delta = 0 and LSE = +inf: its P and dS are 0. kRowLanes lanes share a
// row; sums are in fp32.

//% include primitives/mma_sync

struct Arguments {
//% for argument_fields
  ${argument_fields.type} ${argument_fields.name};
//% end
};
constexpr u32 kArgumentBytes = ${argument_bytes};

constexpr i32 kHeadDimV = ${head_dim_v}, kElementBytes = ${element_bytes}, kRows = ${rows_per_tile}, kThreads = ${threads}, kRowLanes = ${row_lanes};
constexpr i32 kChunks = kHeadDimV / 8, kRowsAtOnce = kThreads / kRowLanes;
constexpr float kLog2E = 1.44269504088896340736f, kLargestFloat = 0x1.fffffep127f;
//% if vanishing_rows
constexpr float kVanishingLse = -0x1p100f;
//% end
static_assert(kRows % kRowsAtOnce == 0 && kChunks <= kRowLanes);

//% include mma_sync/read_chunk_${row_access}
//% include attention/sequence_${sequence}
//% if packed_sequences
//% include schedule/list_key_tiles
//% end

__device__ __forceinline__ float low_element(u32 pair) { return static_cast<float>(cvt_f64_${dtype}(static_cast<u16>(pair))); }
__device__ __forceinline__ float high_element(u32 pair) { return static_cast<float>(cvt_f64_${dtype}(static_cast<u16>(pair >> 16))); }

__device__ __forceinline__ float dot_of_chunks(Vec4 a, Vec4 b) {
  const u32 a_pairs[4] = {a.x, a.y, a.z, a.w}, b_pairs[4] = {b.x, b.y, b.z, b.w};
  float sum = 0;
#pragma unroll
  for (i32 i = 0; i < 4; ++i) {
    sum = fma_rn_f32(low_element(a_pairs[i]), low_element(b_pairs[i]), sum);
    sum = fma_rn_f32(high_element(a_pairs[i]), high_element(b_pairs[i]), sum);
  }
  return sum;
}

extern "C" __global__ void __launch_bounds__(${launch_bounds}) ${entry}(const __grid_constant__ Arguments args) {
//% if programmatic_launch
  griddepcontrol_launch_dependents();
//% end
  const i32 tiles = args.query_tiles, tile = static_cast<i32>(block_index()) % tiles, batch_head = static_cast<i32>(block_index()) / tiles;
//% if packed_sequences
  const TileOfSequence found(args.cu_seqlens_q, args.batch, args.seq_q, tile, kRows);
  const Sequence sequence(args, found.batch);
  const i32 head = batch_head;
//% else
  const Sequence sequence(args, batch_head / args.heads_q);
  const i32 head = batch_head - sequence.batch * args.heads_q;
//% end
  const char* o = static_cast<const char*>(args.o) + kElementBytes * (sequence.query_offset(args.o_stride_batch, args.o_stride_row) + head * args.o_stride_head);
  const char* d_o = static_cast<const char*>(args.d_o) + kElementBytes * (sequence.query_offset(args.d_o_stride_batch, args.d_o_stride_row) + head * args.d_o_stride_head);
  const i32 chunk = static_cast<i32>(thread_index()) % kRowLanes;
// Four rows of a thread are under way at once; of eight ptxas spills the pieces.
#pragma unroll 4
  for (i32 i = 0; i < kRows / kRowsAtOnce; ++i) {
    const i32 query = ${tile_of_sequence} * kRows + i * kRowsAtOnce + static_cast<i32>(thread_index()) / kRowLanes;
    const bool exists = query < query_count(args, sequence);
    float sum = 0;
    if (exists && chunk < kChunks)
      sum = dot_of_chunks(read_chunk(o + query * args.o_stride_row * kElementBytes + 16 * chunk), read_chunk(d_o + query * args.d_o_stride_row * kElementBytes + 16 * chunk));
    if (kRowLanes > 16) sum += shfl_sync_bfly_f32<16>(sum);
    if (kRowLanes > 8) sum += shfl_sync_bfly_f32<8>(sum);
    if (kRowLanes > 4) sum += shfl_sync_bfly_f32<4>(sum);
    if (kRowLanes > 2) sum += shfl_sync_bfly_f32<2>(sum);
    if (kRowLanes > 1) sum += shfl_sync_bfly_f32<1>(sum);
    if (chunk != 0) continue;
    const i64 row = packed_query_row(args, sequence, head, query);
    const float lse = exists ? ld_global_f32(args.lse + row) : negative_infinity();
//% if vanishing_rows
    // From here on down a bias has left nothing of the scores: see AttentionProblem.
    const bool sees = lse > kVanishingLse;
//% else
    const bool sees = lse != negative_infinity();
//% end
    // Finite below, lest a hidden score, which is -inf, met its negative.
    const float lse_log2 = sees ? max_nan_f32(lse * kLog2E, -kLargestFloat) : -negative_infinity();
    const float d_lse = sees && args.d_lse != nullptr ? ld_global_f32(args.d_lse + row) : 0.0f;
    //% include tile/statistics_${statistics_order}
  }
//% if packed_sequences
  // A head has at least as many tiles as there are sequences.
  if (static_cast<i32>(block_index()) < args.batch && warp_index() == 0) list_key_tiles(args, static_cast<i32>(block_index()));
//% end
}
//% include primitives/entry/${target}
