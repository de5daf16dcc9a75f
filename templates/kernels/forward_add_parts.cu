// Adds up what the args.key_parts parts of the keys gave each row of queries, one after the other: O_i and the sum l_i of the exponentials of the scores,
// both beside the maximum m_i of these.
//
//   m' = max(m, m_i)    O = O·exp2(c m - c m') + O_i·exp2(c m_i - c m')    l = l·exp2(c m - c m') + l_i·exp2(c m_i - c m'),   c = ${unit}·log2(e)
//   O = O / l,   LSE = scale·m + ln l
//
// That is what a CTA does that goes through all parts itself, in the same order and with the same roundings: bits do not tell how parts were shared out.
// A part that holds no key of a row has l_i = 0, and its O_i is not read; a row without any key gets O = 0 and LSE = -inf. kRowLanes lanes share a row.
//% if sink
//
// The sink of a row's head counts in the sum l beside its parts, and has no value: it is LSE of a row without any key.
//% end

//% include primitives/mma_sync

struct Arguments {
//% for argument_fields
  ${argument_fields.type} ${argument_fields.name};
//% end
};
constexpr u32 kArgumentBytes = ${argument_bytes};

constexpr i32 kHeadDimV = ${head_dim_v}, kElementBytes = ${element_bytes}, kRows = ${rows_per_tile}, kThreads = ${threads}, kRowLanes = ${row_lanes};
constexpr i32 kChunks = kHeadDimV / 8;
constexpr i32 kAtOnce = 4;  // parts whose loads are under way together
constexpr bool kLastFirst = ${last_first};  // the order of the parts
constexpr float kLn2 = 0.693147180559945309f;
static_assert(kRows * kRowLanes == kThreads && kChunks <= kRowLanes);

//% include tile/${chunk_access}
//% include tile/pack_elements
//% include attention/sequence_${sequence}
//% if sink
constexpr float kHeadroom = 0;  // powers of two by which sums are smaller than their maxima say
//% include attention/row_end_sink
//% end

// A chunk of columns of a row: what one part gives it, or several.
struct Sums {
  float row_max = negative_infinity(), row_sum = 0;
  float o[8] = {};

  // They may still be written when this launch begins: no .nc here.
  __device__ __forceinline__ void load(const float* statistics, const float* columns, bool has_columns) {
    const Vec2F32 both = ld_weak_global_v2_f32(statistics);
    row_max = both.x;
    row_sum = both.y;
    if (row_sum == 0 || !has_columns) return;
    const Vec4F32 low = ld_weak_global_v4_f32(columns), high = ld_weak_global_v4_f32(columns + 4);
    o[0] = low.x, o[1] = low.y, o[2] = low.z, o[3] = low.w, o[4] = high.x, o[5] = high.y, o[6] = high.z, o[7] = high.w;
  }
  __device__ __forceinline__ void add(const Sums& part, float scale_log2) {
    const float m = max_f32(row_max, part.row_max), finite = m == negative_infinity() ? 0 : m;
    const float earlier = ex2_approx_ftz_f32((row_max - finite) * scale_log2), now = ex2_approx_ftz_f32((part.row_max - finite) * scale_log2);
    row_sum = fma_rn_f32(part.row_sum, now, row_sum * earlier);
    row_max = m;
#pragma unroll
    for (i32 e = 0; e < 8; ++e) o[e] = fma_rn_f32(part.o[e], now, o[e] * earlier);
  }
};

extern "C" __global__ void __launch_bounds__(kThreads) ${entry}(const __grid_constant__ Arguments args) {
  const i32 heads = args.batch * args.heads_q, thread = static_cast<i32>(thread_index()), chunk = thread % kRowLanes;
  const i64 rows = static_cast<i64>(heads) * packed_query_rows(args), row = static_cast<i64>(block_index()) * kRows + thread / kRowLanes;
//% if programmatic_launch
  griddepcontrol_wait();
//% end
  if (row >= rows) return;
  const bool has_columns = chunk < kChunks;
  const float* const statistics = args.statistics_partial + 2 * row;
  const float* const columns = args.o_partial + row * kHeadDimV + 8 * chunk;

  Sums sums;
  for (i32 first = 0; first < args.key_parts; first += kAtOnce) {
    Sums some[kAtOnce];
#pragma unroll
    for (i32 i = 0; i < kAtOnce; ++i) {
      const i32 number = first + i;
      if (number >= args.key_parts) continue;
      const i64 part = kLastFirst ? args.key_parts - 1 - number : number;
      some[i].load(statistics + 2 * part * rows, columns + part * rows * kHeadDimV, has_columns);
    }
#pragma unroll
    for (i32 i = 0; i < kAtOnce; ++i)
      if (some[i].row_sum != 0) sums.add(some[i], ${exponent_scale});
  }

//% if sink
  const RowEnd end(args, static_cast<i32>(row / packed_query_rows(args) % args.heads_q), sums.row_max, sums.row_sum);
  const float inverse = end.inverse()${per_share};
  if (args.lse != nullptr && chunk == 0) st_global_f32(args.lse + row, end.lse(lg2_approx_ftz_f32(end.sum) * kLn2));
//% else
  const float inverse = sums.row_sum != 0 ? rcp_approx_ftz_f32(sums.row_sum)${per_share} : 0;  // a NaN stays one
  if (args.lse != nullptr && chunk == 0)
    st_global_f32(args.lse + row, sums.row_sum != 0 ? fma_rn_f32(sums.row_max, ${score_unit}, lg2_approx_ftz_f32(sums.row_sum) * kLn2) : negative_infinity());
//% end
  if (!has_columns) return;
  const i32 batch_head = static_cast<i32>(row / packed_query_rows(args));
  const Sequence sequence(args, batch_head / args.heads_q);
  const i32 head = batch_head - sequence.batch * args.heads_q;
  const i64 query = row - static_cast<i64>(batch_head) * packed_query_rows(args);
  char* const to = static_cast<char*>(args.o) +
                   kElementBytes * (sequence.query_offset(args.o_stride_batch, args.o_stride_row) + head * args.o_stride_head + query * args.o_stride_row);
  u32 words[4];
#pragma unroll
  for (i32 i = 0; i < 4; ++i) words[i] = pack_elements(sums.o[2 * i] * inverse, sums.o[2 * i + 1] * inverse);
  store_chunk(to + 16 * chunk, Vec4{words[0], words[1], words[2], words[3]});
}
//% include primitives/entry/${target}
