// Combines what args.key_parts parts of the keys gave each row of queries, O_i, the maximum m_i of the scores and the sum l_i of their exponentials:
//
//   m = max m_i    w_i = l_i exp2(c (m_i - m))    O = Σ (w_i / Σ w) O_i    LSE = ${unit}·m + ln Σ w,   c = ${unit}·log2(e)
//
// A part that holds no key of a row has l_i = 0, and its O_i is not read; a row without any key gets O = 0 and LSE = -inf. The order of the
// sums is fixed. kWarpsOfRow warps have a row: kRowLanes lanes share its columns, a chunk of eight each, and the kSlices groups of lanes share the
// parts. What counts for few rows is the number of trips to memory, one after the other: one for m_i and l_i, and one for so many parts of O as are under
// way together.
//% if sink
//
// The sink of a row's head counts in the sum of the weights beside its parts, and has no value: it is LSE of a row without any key.
//% end

//% include primitives/mma_sync

struct Arguments {
//% for argument_fields
  ${argument_fields.type} ${argument_fields.name};
//% end
};
constexpr u32 kArgumentBytes = ${argument_bytes};

constexpr i32 kHeadDimV = ${head_dim_v}, kElementBytes = ${element_bytes}, kRows = ${rows_per_tile}, kThreads = ${threads}, kRowLanes = ${row_lanes}, kWarpsOfRow = ${warps_of_row};
constexpr i32 kChunks = kHeadDimV / 8, kSlicesOfWarp = kWarpSize / kRowLanes, kSlices = kWarpsOfRow * kSlicesOfWarp;
constexpr i32 kAtOnce = 4;  // parts of a slice whose loads are under way together
constexpr float kLn2 = 0.693147180559945309f;
constexpr float kHeadroom = ${headroom};  // powers of two by which sums are smaller than their maxima say
static_assert(kThreads == kRows * kWarpsOfRow * kWarpSize && kChunks <= kRowLanes && kSlicesOfWarp * kRowLanes == kWarpSize);
static_assert(kWarpsOfRow == 1 || kRows == 1);   // the warps of a CTA meet once

//% include tile/${chunk_access}
//% include tile/pack_elements
//% include attention/sequence_${sequence}
//% if sink
//% include attention/row_end_sink
//% end

// Adds what the lanes hold whose index differs in this bit, unless the bit tells columns apart.
template <i32 kMask>
__device__ __forceinline__ void add_slices(float (&sums)[8]) {
  if (kMask < kRowLanes) return;
#pragma unroll
  for (i32 e = 0; e < 8; ++e) sums[e] += shfl_sync_bfly_f32<kMask>(sums[e]);
}

// The maximum of all lanes.
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

// What a part of the keys, or several, know of a row's scores.
struct RowStatistics {
  float row_max, row_sum;  // -inf and 0 without a key

  __device__ __forceinline__ RowStatistics() : row_max(negative_infinity()), row_sum(0) {}
  // They may still be written when this launch begins: no .nc here.
  __device__ __forceinline__ explicit RowStatistics(const float* from) {
    const Vec2F32 both = ld_weak_global_v2_f32(from);
    row_max = both.x;
    row_sum = both.y;
  }
  // The sum as it is beside a maximum of `to`, which is no smaller, and a number.
  __device__ __forceinline__ float sum_beside(float to, float scale_log2) const { return row_sum * ex2_approx_ftz_f32((row_max - to) * scale_log2); }
};

// A number in place of the maximum of no keys.
__device__ __forceinline__ float finite(float row_max) { return row_max == negative_infinity() ? 0 : row_max; }

// Parts of a row, of which a slice has every kSlices-th.
struct Parts {
  RowStatistics statistics[kAtOnce];
  Vec4F32 low[kAtOnce], high[kAtOnce];

  __device__ __forceinline__ void load_statistics(const float* of_row, i64 rows, i32 first, i32 parts) {
#pragma unroll
    for (i32 i = 0; i < kAtOnce; ++i) {
      const i32 part = first + i * kSlices;
      statistics[i] = part < parts ? RowStatistics(of_row + 2 * part * rows) : RowStatistics();
    }
  }
  __device__ __forceinline__ void load_o(const float* o_of_row, i64 rows, i32 first, bool has_columns) {
#pragma unroll
    for (i32 i = 0; i < kAtOnce; ++i) {
      low[i] = high[i] = Vec4F32{};
      if (statistics[i].row_sum == 0 || !has_columns) continue;
      const float* const o = o_of_row + (first + i * kSlices) * rows * kHeadDimV;
      low[i] = ld_weak_global_v4_f32(o);
      high[i] = ld_weak_global_v4_f32(o + 4);
    }
  }
  __device__ __forceinline__ void add_to(float (&sums)[8], float row_max, float scale_log2, float inverse) const {
#pragma unroll
    for (i32 i = 0; i < kAtOnce; ++i) {
      const float weight = statistics[i].sum_beside(row_max, scale_log2) * inverse;
      const float o[8] = {low[i].x, low[i].y, low[i].z, low[i].w, high[i].x, high[i].y, high[i].z, high[i].w};
#pragma unroll
      for (i32 e = 0; e < 8; ++e) sums[e] = fma_rn_f32(weight, o[e], sums[e]);
    }
  }
};

extern "C" __global__ void __launch_bounds__(kThreads) ${entry}(const __grid_constant__ Arguments args) {
  const i32 heads = ${row_heads}, parts = args.key_parts, warp = static_cast<i32>(warp_index());
  const i64 rows = static_cast<i64>(heads) * packed_query_rows(args), row = static_cast<i64>(block_index()) * kRows + warp / kWarpsOfRow;
  if (row >= rows) return;
//% if packed_sequences
  if (row % packed_query_rows(args) < ld_global_i32(args.cu_seqlens_q)) return;  // in no sequence
//% end
  const i32 lane = static_cast<i32>(lane_index()), chunk = lane % kRowLanes;
  const i32 slice = warp % kWarpsOfRow * kSlicesOfWarp + lane / kRowLanes;
//% if programmatic_launch
  griddepcontrol_wait();
//% end
  const float* const statistics_of_row = args.statistics_partial + 2 * row;
  const float c = ${exponent_scale};
  const float* const o_of_row = args.o_partial + row * kHeadDimV + 8 * chunk;

  i32 first = slice;
  Parts some;
  some.load_statistics(statistics_of_row, rows, first, parts);
  // Every warp finds the maximum of all parts, and the sum beside it.
  RowStatistics all;
  for (i32 part = lane; part < parts; part += 2 * kWarpSize) {
    const RowStatistics x(statistics_of_row + 2 * part * rows);
    const RowStatistics y = part + kWarpSize < parts ? RowStatistics(statistics_of_row + 2 * (part + kWarpSize) * rows) : RowStatistics();
    const float higher = max_f32(all.row_max, max_f32(x.row_max, y.row_max));  // of numbers: a NaN is in its sum, too
    const float to = finite(higher);
    all.row_sum = all.sum_beside(to, c) + x.sum_beside(to, c) + y.sum_beside(to, c);
    all.row_max = higher;
  }
  some.load_o(o_of_row, rows, first, chunk < kChunks);
  const float m = finite(warp_max(all.row_max)), weights = warp_sum(all.sum_beside(m, c));
//% if sink
  const RowEnd end(args, static_cast<i32>(row / packed_query_rows(args) % args.heads_q), m, weights);
  const float inverse = end.inverse()${per_share};
//% else
  const float inverse = weights != 0 ? rcp_approx_ftz_f32(weights)${per_share} : 0;  // a NaN stays one
//% end

  // Weights that add up to 1: sums of the largest numbers do not overflow.
  float sums[8] = {};
  while (true) {
    some.add_to(sums, m, c, inverse);
    first += kAtOnce * kSlices;
    if (first >= parts) break;
    some.load_statistics(statistics_of_row, rows, first, parts);
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
    for (i32 other = 0; other < kWarpsOfRow - 1; ++other) {
      if (!has_chunk) break;
      const u32 from = mine + static_cast<u32>(other) * of_warp;
      const Vec4F32 low = ld_shared_v4_f32(from), high = ld_shared_v4_f32(from + 16);
      const float added[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
      for (i32 e = 0; e < 8; ++e) sums[e] += added[e];
    }
  }

  if (args.lse != nullptr && lane == 0)
//% if sink
    st_global_f32(args.lse + row, end.lse((lg2_approx_ftz_f32(end.sum) + kHeadroom) * kLn2));
//% else
    st_global_f32(args.lse + row, weights != 0 ? fma_rn_f32(m, ${score_unit}, (lg2_approx_ftz_f32(weights) + kHeadroom) * kLn2) : negative_infinity());
//% end
  if (!has_chunk) return;
  const i32 batch_head = static_cast<i32>(row / packed_query_rows(args));
  const Sequence sequence(args, batch_head / args.heads_q);
  const i32 head = batch_head - sequence.batch * args.heads_q;
  const i64 query = row - static_cast<i64>(batch_head) * packed_query_rows(args);
  char* const to = static_cast<char*>(args.o) +
                   kElementBytes * (sequence.query_offset(args.o_stride_batch, args.o_stride_row) + head * args.o_stride_head + query * args.o_stride_row);
  u32 words[4];
#pragma unroll
  for (i32 i = 0; i < 4; ++i) words[i] = pack_elements(sums[2 * i], sums[2 * i + 1]);
  store_chunk(to + 16 * chunk, Vec4{words[0], words[1], words[2], words[3]});
}
//% include primitives/entry/${target}
