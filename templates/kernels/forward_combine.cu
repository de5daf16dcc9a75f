// Combines what args.key_parts parts of the keys gave each row of queries, O_i and LSE_i:
//
//   m = max LSE_i    w_i = exp(LSE_i - m)    O = Σ (w_i / Σ w) O_i    LSE = m + ln Σ w
//
// A part that holds no key of a row has LSE_i = -inf, and its O_i is not read; a row without any key gets O = 0 and LSE = -inf. The order of the
// sums is fixed. A warp has a row: kRowLanes lanes share its columns, a chunk of eight each, and the kSlices groups of lanes share the parts.

//% include primitives/mma_sync

struct Arguments {
//% for argument_fields
  ${argument_fields.type} ${argument_fields.name};
//% end
};
constexpr u32 kArgumentBytes = ${argument_bytes};

constexpr i32 kHeadDim = ${head_dim}, kRows = ${rows_per_tile}, kThreads = ${threads}, kRowLanes = ${row_lanes};
constexpr i32 kChunks = kHeadDim / 8, kSlices = kWarpSize / kRowLanes;
constexpr i32 kAtOnce = 4;  // parts of a slice whose loads are under way together
constexpr float kLog2E = 1.44269504088896340736f, kLn2 = 0.693147180559945309f;
static_assert(kThreads == kRows * kWarpSize && kChunks <= kRowLanes && kSlices * kRowLanes == kWarpSize);

//% include tile/${chunk_access}
//% include tile/pack_elements
//% include attention/sequence_${sequence}

// Adds what the lanes hold whose index differs in this bit, unless the bit tells columns apart.
template <i32 kMask>
__device__ __forceinline__ void add_slices(float (&sums)[8]) {
  if (kMask < kRowLanes) return;
#pragma unroll
  for (i32 e = 0; e < 8; ++e) sums[e] += shfl_sync_bfly_f32<kMask>(sums[e]);
}

// Of all lanes.
__device__ __forceinline__ float warp_max(float x) {
  x = max_f32(x, shfl_sync_bfly_f32<16>(x));
  x = max_f32(x, shfl_sync_bfly_f32<8>(x));
  x = max_f32(x, shfl_sync_bfly_f32<4>(x));
  x = max_f32(x, shfl_sync_bfly_f32<2>(x));
  return max_f32(x, shfl_sync_bfly_f32<1>(x));
}
__device__ __forceinline__ float warp_sum(float x) {
  x += shfl_sync_bfly_f32<16>(x);
  x += shfl_sync_bfly_f32<8>(x);
  x += shfl_sync_bfly_f32<4>(x);
  x += shfl_sync_bfly_f32<2>(x);
  return x + shfl_sync_bfly_f32<1>(x);
}

extern "C" __global__ void __launch_bounds__(kThreads) ${entry}(const __grid_constant__ Arguments args) {
  const i32 heads = args.batch * args.heads_q, parts = args.key_parts;
  const i64 rows = static_cast<i64>(heads) * args.seq_q, row = static_cast<i64>(block_index()) * kRows + warp_index();
  if (row >= rows) return;
  const i32 lane = static_cast<i32>(lane_index()), chunk = lane % kRowLanes, slice = lane / kRowLanes;
//% if programmatic_launch
  griddepcontrol_wait();
//% end
  // The parts may still be written when this launch begins: no .nc here.
  const float* const lse_of_row = args.lse_partial + row;
  const float* const o_of_row = args.o_partial + row * kHeadDim + 8 * chunk;

  float m = negative_infinity(), weights = 0;
  for (i32 part = lane; part < parts; part += kWarpSize) m = max_f32(m, ld_weak_global_f32(lse_of_row + part * rows));
  m = warp_max(m);  // of numbers: a NaN makes its weight one, whatever m is
  const float finite_m = m == negative_infinity() ? 0 : m;  // any number makes the weights of no keys zero
  for (i32 part = lane; part < parts; part += kWarpSize)
    weights += ex2_approx_ftz_f32((ld_weak_global_f32(lse_of_row + part * rows) - finite_m) * kLog2E);
  weights = warp_sum(weights);
  const float inverse = weights != 0 ? rcp_approx_ftz_f32(weights) : 0;  // a NaN stays one

  // Weights that add up to 1: sums of the largest numbers do not overflow.
  float sums[8] = {};
  for (i32 first = slice; first < parts; first += kAtOnce * kSlices) {
    float lse[kAtOnce];
    Vec4F32 low[kAtOnce] = {}, high[kAtOnce] = {};
#pragma unroll
    for (i32 i = 0; i < kAtOnce; ++i) {
      const i32 part = first + i * kSlices;
      lse[i] = part < parts ? ld_weak_global_f32(lse_of_row + part * rows) : negative_infinity();
    }
#pragma unroll
    for (i32 i = 0; i < kAtOnce; ++i) {
      if (lse[i] == negative_infinity() || chunk >= kChunks) continue;
      const float* const o = o_of_row + (first + i * kSlices) * rows * kHeadDim;
      low[i] = ld_weak_global_v4_f32(o);
      high[i] = ld_weak_global_v4_f32(o + 4);
    }
#pragma unroll
    for (i32 i = 0; i < kAtOnce; ++i) {
      const float weight = ex2_approx_ftz_f32((lse[i] - finite_m) * kLog2E) * inverse;
      const float o[8] = {low[i].x, low[i].y, low[i].z, low[i].w, high[i].x, high[i].y, high[i].z, high[i].w};
#pragma unroll
      for (i32 e = 0; e < 8; ++e) sums[e] = fma_rn_f32(weight, o[e], sums[e]);
    }
  }
  add_slices<16>(sums);
  add_slices<8>(sums);
  add_slices<4>(sums);
  add_slices<2>(sums);
  add_slices<1>(sums);

  if (args.lse != nullptr && lane == 0)
    st_global_f32(args.lse + row, weights != 0 ? fma_rn_f32(lg2_approx_ftz_f32(weights), kLn2, m) : negative_infinity());
  if (slice != 0 || chunk >= kChunks) return;
  const i32 batch_head = static_cast<i32>(row / args.seq_q);
  const Sequence sequence(args, batch_head / args.heads_q);
  const i32 head = batch_head - sequence.batch * args.heads_q;
  const i64 query = row - static_cast<i64>(batch_head) * args.seq_q;
  char* const to = static_cast<char*>(args.o) +
                   2 * (sequence.query_offset(args.o_stride_batch, args.o_stride_row) + head * args.o_stride_head + query * args.o_stride_row);
  u32 words[4];
#pragma unroll
  for (i32 i = 0; i < 4; ++i) words[i] = pack_elements(sums[2 * i], sums[2 * i + 1]);
  store_chunk(to + 16 * chunk, Vec4{words[0], words[1], words[2], words[3]});
}
//% include primitives/entry/${target}
