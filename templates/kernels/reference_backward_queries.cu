// In double precision, for a tile of queries of one head, from the O, weight (Σ p |v|) and LSE of the forward's reference. u is the unit
// roundoff of ${dtype}, h half of its smallest number:
//
//   delta = Σ dO o - dLSE           error = Σ |dO| (2 weight + |o| + h/u)       noise = u² Σ dO² (o² + Σ_j p² v² + (h/u)²)
//   x = ${score_formula}      s = the derivative of x by scale q·k_j      e: what kernels lose of 1 - s
//   p = exp(x - LSE)        ds = p s (dO·v - delta)                     w = |ds| + g/u + p s error / 2
//   g = h (1 + |dO·v - delta|) + e (1 - s) p |dO·v - delta|
//   dQ = scale Σ_j ds k             weight of dQ = scale Σ_j w |k|
//   partial = scale² (noise |Σ_j p s k|² + Σ_j g² |k|²)
//
// delta, error and noise of each query are left for the kernel of the keys.
//
// shared memory:   q, dO, k, v [kTile][kHeadDim + 1] each   ds, w, p, p s [kTile][kTile] each     doubles, ${shared_bytes} bytes in all

//% include primitives/mma_sync

struct Arguments {
//% for argument_fields
  ${argument_fields.type} ${argument_fields.name};
//% end
};
constexpr u32 kArgumentBytes = ${argument_bytes};

constexpr i32 kHeadDim = ${head_dim}, kThreads = ${threads}, kTile = ${rows_per_tile};
constexpr i32 kPairValues = 4;  // ds, w, p, p s
//% include oracle/backward_pairs

struct QueryTile {
  i64 batch, first_index;  // batch: of the tensors; first_index: of the tile's first row, all heads' rows counted
  i32 head, first, count;  // first: in the sequence; count: of rows that are stored
  SequenceRows rows;
  i32 existing;  // rows that are the sequence's, none or fewer

  __device__ __forceinline__ explicit QueryTile(const Arguments& args, const OracleTile& tile)
      : batch(tile.batch), head(tile.head), first(tile.first), rows(args, tile.sequence) {
    count = rows.stored_queries - first < kTile ? rows.stored_queries - first : kTile;
    existing = rows.queries - first < kTile ? rows.queries - first : kTile;
    first_index = (batch * args.heads_q + head) * args.seq_q + rows.first_query + first;
  }
};

// By the thread of a row.
__device__ __forceinline__ void store_delta(const Arguments& args, u32 shared, i64 row, i32 i, bool exists) {
  double delta = 0, error = 0;
  for (i32 d = 0; d < kHeadDim; ++d) {
    const double d_o = at(shared + kGradientOffset, i, d), o = ld_global_f64(args.o_fp64 + row * kHeadDim + d);
    delta = fma_rn_f64(d_o, o, delta);
    const double weight = ld_global_f64(args.weight_fp64 + row * kHeadDim + d);
    error += absolute(d_o) * (2 * weight + absolute(o) + args.smallest_step / args.unit_roundoff);
  }
  if (exists && args.d_lse != nullptr) delta -= static_cast<double>(ld_global_f32(args.d_lse + row));
  st_global_f64(args.row_statistics + RowStatistics::kStored * row, delta);
  st_global_f64(args.row_statistics + RowStatistics::kStored * row + 1, error);
}

extern "C" __global__ void __launch_bounds__(kThreads) ${entry}(const __grid_constant__ Arguments args) {
  const QueryTile tile(args, OracleTile::of_queries(args, static_cast<i32>(block_index()), args.query_tiles));
  const i32 head_kv = tile.head / args.group_size, thread = thread_index();
  const u32 shared = shared_base();
  load_rows(shared + kQueryOffset, args.q, tile.batch * args.q_stride_batch + tile.head * args.q_stride_head + (tile.rows.first_query + tile.first) * args.q_stride_row,
            args.q_stride_row, tile.existing);
  load_rows(shared + kGradientOffset, args.d_o,
            tile.batch * args.d_o_stride_batch + tile.head * args.d_o_stride_head + (tile.rows.first_query + tile.first) * args.d_o_stride_row, args.d_o_stride_row,
            tile.existing);
  bar_sync();
  if (thread < tile.count) store_delta(args, shared, tile.first_index + thread, thread, thread < tile.existing);
  bar_sync();

  const Column mine;
  double value[kRowsOfThread] = {}, weight[kRowsOfThread] = {}, mean[kRowsOfThread] = {}, squares[kRowsOfThread] = {};
  // This thread's pair: a row of the tile, and in each block one key.
  const i32 query = thread / kTile, key = thread % kTile;
  const bool has_row = query < tile.existing;
  const i64 row = tile.first_index + query;
  const RowStatistics statistics =
      has_row ? RowStatistics{ld_global_f64(args.lse_fp64 + row), ld_global_f64(args.row_statistics + RowStatistics::kStored * row),
                              ld_global_f64(args.row_statistics + RowStatistics::kStored * row + 1), 0}
              : RowStatistics{};
  const AttendedKeys row_keys = has_row ? attended_keys(args, tile.rows, tile.first + query) : AttendedKeys{0, 0};
  const i32 begin = attended_keys(args, tile.rows, tile.first).begin;
  const i32 end = tile.existing > 0 ? attended_keys(args, tile.rows, tile.first + tile.existing - 1).end : begin;
  double lost_squares = 0;  // g² |k|² of the keys that the row attends to and this thread had

  for (i32 first = begin / kTile * kTile; first < end; first += kTile) {
    const i32 count = tile.rows.keys - first < kTile ? tile.rows.keys - first : kTile;
    load_rows(shared + kKeyOffset, args.k, tile.batch * args.k_stride_batch + head_kv * args.k_stride_head + (tile.rows.first_key + first) * args.k_stride_row,
              args.k_stride_row, count);
    load_rows(shared + kValueOffset, args.v, tile.batch * args.v_stride_batch + head_kv * args.v_stride_head + (tile.rows.first_key + first) * args.v_stride_row,
              args.v_stride_row, count);
    bar_sync();
    if (query < kTile) {
      double values[kPairValues] = {};
      if (row_keys.has(first + key)) {
//% if dropout
        const double share = kept_share(args, tile.rows.batch * args.heads_q + tile.head, tile.first + query, first + key);
//% else
        constexpr double share = 1;
//% end
        const Pair pair(args, shared, query, key, statistics, added_score(args, tile.rows, tile.rows.batch, tile.head, tile.first + query, first + key), share);
        values[0] = pair.ds;
        values[1] = pair.weight;
        values[2] = pair.p;
        values[3] = pair.slope;
        lost_squares += pair.k_squares * pair.lost * pair.lost;
      }
#pragma unroll
      for (i32 i = 0; i < kPairValues; ++i) st_shared_f64(pair_at(shared, i, query, key), values[i]);
    }
    bar_sync();
    for (i32 j = 0; j < count; ++j) {
      const double k = at(shared + kKeyOffset, j, mine.column), v = at(shared + kValueOffset, j, mine.column);
#pragma unroll
      for (i32 r = 0; r < kRowsOfThread; ++r) {
        if (!mine.owns(r)) continue;
        const i32 i = mine.first_row + r;
        const double p = ld_shared_f64(pair_at(shared, 2, i, j));
        value[r] = fma_rn_f64(ld_shared_f64(pair_at(shared, 0, i, j)), k, value[r]);
        weight[r] = fma_rn_f64(ld_shared_f64(pair_at(shared, 1, i, j)), absolute(k), weight[r]);
        mean[r] = fma_rn_f64(ld_shared_f64(pair_at(shared, 3, i, j)), k, mean[r]);
        squares[r] = fma_rn_f64(p * v, p * v, squares[r]);
      }
    }
    bar_sync();
  }

  // What a row's columns add to its noise lies in the tiles of K and V, its keys' squares beside them.
  const i64 elements = batch_of_tensors(args) * args.heads_q * args.seq_q * kHeadDim;
  const double scale = args.softmax_scale, lost_of_o = args.smallest_step / args.unit_roundoff;
#pragma unroll
  for (i32 r = 0; r < kRowsOfThread; ++r) {
    const i32 i = mine.first_row + r;
    if (i >= tile.count) continue;
    const i64 index = (tile.first_index + i) * kHeadDim + mine.column;
    const double d_o = at(shared + kGradientOffset, i, mine.column), o = ld_global_f64(args.o_fp64 + index);
    st_global_f64(args.d_q_fp64 + index, scale * value[r]);
    st_global_f64(args.d_q_fp64 + elements + index, scale * weight[r]);
    st_shared_f64(shared + kKeyOffset + i * kRowStride + mine.column * kDouble, d_o * d_o * (o * o + squares[r] + lost_of_o * lost_of_o));
    st_shared_f64(shared + kValueOffset + i * kRowStride + mine.column * kDouble, mean[r] * mean[r]);
  }
  if (query < kTile) st_shared_f64(pair_at(shared, 0, query, key), lost_squares);
  bar_sync();
  if (thread < tile.count) {
    double likely = 0, mean_squares = 0, lost = 0;
    for (i32 d = 0; d < kHeadDim; ++d) {
      likely += at(shared + kKeyOffset, thread, d);
      mean_squares += at(shared + kValueOffset, thread, d);
    }
    for (i32 j = 0; j < kTile; ++j) lost += ld_shared_f64(pair_at(shared, 0, thread, j));
    const double noise = args.unit_roundoff * args.unit_roundoff * likely;
    st_global_f64(args.row_statistics + RowStatistics::kStored * (tile.first_index + thread) + 2, noise);
    st_global_f64(static_cast<double*>(args.partials) + tile.first_index + thread,
                  scale * scale * (mean_squares * noise + lost));
  }
}
//% include primitives/entry/${target}
