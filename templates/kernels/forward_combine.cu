// Combines what args.key_parts parts of the keys gave each row of queries, O_i and LSE_i:
//
//   m = max LSE_i    w_i = exp(LSE_i - m)    O = Σ (w_i / Σ w) O_i    LSE = m + ln Σ w
//
// A part that holds no key of a row has LSE_i = -inf, and its O_i is not read; a row without any key gets O = 0 and LSE = -inf. The order of the
// sums is fixed. kWarpsOfRow warps have a row: kRowLanes lanes share its columns, a chunk of eight each, and the kSlices groups of lanes share the
// parts. What counts for few rows is the number of trips to memory, one after the other: one for LSE, and one for so many parts of O as are under
// way together.

//% include primitives/mma_sync

struct Arguments {
//% for argument_fields
  ${argument_fields.type} ${argument_fields.name};
//% end
};
constexpr u32 kArgumentBytes = ${argument_bytes};

constexpr i32 kHeadDim = ${head_dim}, kRows = ${rows_per_tile}, kThreads = ${threads}, kRowLanes = ${row_lanes}, kWarpsOfRow = ${warps_of_row};
constexpr i32 kChunks = kHeadDim / 8, kSlicesOfWarp = kWarpSize / kRowLanes, kSlices = kWarpsOfRow * kSlicesOfWarp;
constexpr i32 kAtOnce = 4;  // parts of a slice whose loads are under way together
constexpr float kLog2E = 1.44269504088896340736f, kLn2 = 0.693147180559945309f;
static_assert(kThreads == kRows * kWarpsOfRow * kWarpSize && kChunks <= kRowLanes && kSlicesOfWarp * kRowLanes == kWarpSize);
static_assert(kWarpsOfRow == 1 || kRows == 1);   // the warps of a CTA meet once

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

// A number in place of the LSE of no keys, whose weight is then zero.
__device__ __forceinline__ float finite(float lse) { return lse == negative_infinity() ? 0 : lse; }
__device__ __forceinline__ float weight_of(float lse, float reference) { return ex2_approx_ftz_f32((lse - reference) * kLog2E); }

// Parts of a row, of which a slice has every kSlices-th. They may still be written when this launch begins: no .nc here.
struct Parts {
  float lse[kAtOnce];
  Vec4F32 low[kAtOnce], high[kAtOnce];

  __device__ __forceinline__ void load_lse(const float* lse_of_row, i64 rows, i32 first, i32 parts) {
#pragma unroll
    for (i32 i = 0; i < kAtOnce; ++i) {
      const i32 part = first + i * kSlices;
      lse[i] = part < parts ? ld_weak_global_f32(lse_of_row + part * rows) : negative_infinity();
    }
  }
  __device__ __forceinline__ void load_o(const float* o_of_row, i64 rows, i32 first, bool has_columns) {
#pragma unroll
    for (i32 i = 0; i < kAtOnce; ++i) {
      low[i] = high[i] = Vec4F32{};
      if (lse[i] == negative_infinity() || !has_columns) continue;
      const float* const o = o_of_row + (first + i * kSlices) * rows * kHeadDim;
      low[i] = ld_weak_global_v4_f32(o);
      high[i] = ld_weak_global_v4_f32(o + 4);
    }
  }
  __device__ __forceinline__ void add_to(float (&sums)[8], float reference, float inverse) const {
#pragma unroll
    for (i32 i = 0; i < kAtOnce; ++i) {
      const float weight = weight_of(lse[i], reference) * inverse;
      const float o[8] = {low[i].x, low[i].y, low[i].z, low[i].w, high[i].x, high[i].y, high[i].z, high[i].w};
#pragma unroll
      for (i32 e = 0; e < 8; ++e) sums[e] = fma_rn_f32(weight, o[e], sums[e]);
    }
  }
};

extern "C" __global__ void __launch_bounds__(kThreads) ${entry}(const __grid_constant__ Arguments args) {
  const i32 heads = args.batch * args.heads_q, parts = args.key_parts, warp = static_cast<i32>(warp_index());
  const i64 rows = static_cast<i64>(heads) * args.seq_q, row = static_cast<i64>(block_index()) * kRows + warp / kWarpsOfRow;
  if (row >= rows) return;
  const i32 lane = static_cast<i32>(lane_index()), chunk = lane % kRowLanes;
  const i32 slice = warp % kWarpsOfRow * kSlicesOfWarp + lane / kRowLanes;
//% if programmatic_launch
  griddepcontrol_wait();
//% end
  const float* const lse_of_row = args.lse_partial + row;
  const float* const o_of_row = args.o_partial + row * kHeadDim + 8 * chunk;

  i32 first = slice;
  Parts some;
  some.load_lse(lse_of_row, rows, first, parts);
  // Of all parts, by every warp: the maximum, and the sum of the weights beside it.
  float m = negative_infinity(), weights = 0;
  for (i32 part = lane; part < parts; part += 2 * kWarpSize) {
    const float x = ld_weak_global_f32(lse_of_row + part * rows);
    const float y = part + kWarpSize < parts ? ld_weak_global_f32(lse_of_row + (part + kWarpSize) * rows) : negative_infinity();
    const float higher = max_f32(m, max_f32(x, y));  // of numbers: a NaN makes its weight one, whatever m is
    weights = weights * weight_of(m, finite(higher)) + weight_of(x, finite(higher)) + weight_of(y, finite(higher));
    m = higher;
  }
  some.load_o(o_of_row, rows, first, chunk < kChunks);
  const float m_of_lane = m;
  m = warp_max(m);
  const float reference = finite(m);
  weights = warp_sum(weights * weight_of(m_of_lane, reference));
  const float inverse = weights != 0 ? rcp_approx_ftz_f32(weights) : 0;  // a NaN stays one

  // Weights that add up to 1: sums of the largest numbers do not overflow.
  float sums[8] = {};
  while (true) {
    some.add_to(sums, reference, inverse);
    first += kAtOnce * kSlices;
    if (first >= parts) break;
    some.load_lse(lse_of_row, rows, first, parts);
    some.load_o(o_of_row, rows, first, chunk < kChunks);
  }
  add_slices<16>(sums);
  add_slices<8>(sums);
  add_slices<4>(sums);
  add_slices<2>(sums);
  add_slices<1>(sums);

  const bool has_chunk = lane < kRowLanes && chunk < kChunks;  // of what the slices of a warp have added up
  if (kWarpsOfRow > 1) {
    constexpr u32 kChunkBytes = 8 * sizeof(float);
    const u32 mine = shared_base() + static_cast<u32>(chunk) * kChunkBytes;
    const u32 of_warp = kChunks * kChunkBytes;
    if (warp > 0 && has_chunk) {
      const u32 to = mine + static_cast<u32>(warp - 1) * of_warp;
      st_shared_v4_b32(to, Vec4{f32_to_bits(sums[0]), f32_to_bits(sums[1]), f32_to_bits(sums[2]), f32_to_bits(sums[3])});
      st_shared_v4_b32(to + 16, Vec4{f32_to_bits(sums[4]), f32_to_bits(sums[5]), f32_to_bits(sums[6]), f32_to_bits(sums[7])});
    }
    bar_sync();
    if (warp > 0) return;
#pragma unroll
    for (u32 other = 0; other < kWarpsOfRow - 1; ++other) {
      if (!has_chunk) break;
      const Vec4F32 low = ld_shared_v4_f32(mine + other * of_warp), high = ld_shared_v4_f32(mine + other * of_warp + 16);
      const float added[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
      for (i32 e = 0; e < 8; ++e) sums[e] += added[e];
    }
  }

  if (args.lse != nullptr && lane == 0)
    st_global_f32(args.lse + row, weights != 0 ? fma_rn_f32(lg2_approx_ftz_f32(weights), kLn2, m) : negative_infinity());
  if (!has_chunk) return;
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
