// In double precision, for a tile of keys of one key/value head, after the kernel of the queries, which left delta, error and noise of each.
// With its p, s, ds, w, u, g and h:
//
//   dK = scale Σ_i ds q      weight of dK = scale Σ_i w |q|            partial = scale² Σ_i |q|² ((p s)² noise + g²)
//   dV = Σ_i p dO            weight of dV = Σ_i (p + h/u) |dO|         partial = h² Σ_i |dO|²
//
// i: the queries that attend to the key, of all query heads that share it.
//
// shared memory:   q, dO, k, v [kTile][kHeadDim + 1] each   ds, w, p, p + h/u [kTile][kTile] each     doubles, ${shared_bytes} bytes in all

//% include primitives/mma_sync

struct Arguments {
//% for argument_fields
  ${argument_fields.type} ${argument_fields.name};
//% end
};
constexpr u32 kArgumentBytes = ${argument_bytes};

constexpr i32 kHeadDim = ${head_dim}, kThreads = ${threads}, kTile = ${rows_per_tile};
constexpr i32 kPairValues = 4;  // ds, w, p, p + h/u
//% include oracle/backward_pairs

// Whether any of these queries attends to any of these keys: neither end of what a query attends to falls from one to the next.
__device__ __forceinline__ bool attend(const Arguments& args, const SequenceRows& rows, i32 first_query, i32 queries, i32 first_key, i32 keys) {
  return attended_keys(args, rows, first_query).begin < first_key + keys && attended_keys(args, rows, first_query + queries - 1).end > first_key;
}

extern "C" __global__ void __launch_bounds__(kThreads) ${entry}(const __grid_constant__ Arguments args) {
  const i32 heads_kv = args.heads_q / args.group_size, thread = thread_index();
  const OracleTile tile = OracleTile::of_keys(args, static_cast<i32>(block_index()), args.key_tiles);
  const SequenceRows rows(args, tile.sequence);
  const i32 head_kv = tile.head, first_key = tile.first;
  const i32 keys = rows.stored_keys - first_key < kTile ? rows.stored_keys - first_key : kTile;
  const i64 batch = tile.batch, first_index = (batch * heads_kv + head_kv) * args.seq_kv + rows.first_key + first_key;
  const i32 existing = rows.keys - first_key < kTile ? rows.keys - first_key : kTile;  // none or fewer, where the sequence ends before
  const u32 shared = shared_base();
  load_rows(shared + kKeyOffset, args.k, batch * args.k_stride_batch + head_kv * args.k_stride_head + (rows.first_key + first_key) * args.k_stride_row,
            args.k_stride_row, existing);
  load_rows(shared + kValueOffset, args.v, batch * args.v_stride_batch + head_kv * args.v_stride_head + (rows.first_key + first_key) * args.v_stride_row,
            args.v_stride_row, existing);

  const Column mine;
  double dk[kRowsOfThread] = {}, dk_weight[kRowsOfThread] = {}, dv[kRowsOfThread] = {}, dv_weight[kRowsOfThread] = {};
  const i32 query = thread / kTile, key = thread % kTile;  // this thread's pair in each block of queries
  const double scale = args.softmax_scale, step = args.smallest_step;
  double dk_noise = 0, dv_noise = 0;

  for (i32 member = 0; member < args.group_size; ++member) {
    const i32 head = head_kv * args.group_size + member;
    for (i32 first = 0; first < rows.queries; first += kTile) {
      const i32 count = rows.queries - first < kTile ? rows.queries - first : kTile;
      if (!attend(args, rows, first, count, first_key, existing)) continue;
      load_rows(shared + kQueryOffset, args.q, batch * args.q_stride_batch + head * args.q_stride_head + (rows.first_query + first) * args.q_stride_row,
                args.q_stride_row, count);
      load_rows(shared + kGradientOffset, args.d_o, batch * args.d_o_stride_batch + head * args.d_o_stride_head + (rows.first_query + first) * args.d_o_stride_row,
                args.d_o_stride_row, count);
      bar_sync();
      if (query < kTile) {
        double values[kPairValues] = {};
        if (query < count && key < existing && attended_keys(args, rows, first + query).has(first_key + key)) {
          const RowStatistics row = RowStatistics::load(args, (batch * args.heads_q + head) * args.seq_q + rows.first_query + first + query);
//% if dropout
          const double share = kept_share(args, rows.batch * args.heads_q + head, first + query, first_key + key);
//% else
          constexpr double share = 1;
//% end
          const Pair pair(args, shared, query, key, row, added_score(args, rows, rows.batch, head, first + query, first_key + key), share);
          values[0] = pair.ds;
          values[1] = pair.weight;
          values[2] = pair.p;
          values[3] = pair.p + share * step / args.unit_roundoff;
          dk_noise += scale * scale * pair.q_squares * (pair.slope * pair.slope * row.delta_noise + pair.lost * pair.lost);
          dv_noise += pair.d_o_squares * share * step * share * step;
        }
#pragma unroll
        for (i32 i = 0; i < kPairValues; ++i) st_shared_f64(pair_at(shared, i, query, key), values[i]);
      }
      bar_sync();
      for (i32 i = 0; i < count; ++i) {
        const double q = at(shared + kQueryOffset, i, mine.column), d_o = at(shared + kGradientOffset, i, mine.column);
#pragma unroll
        for (i32 r = 0; r < kRowsOfThread; ++r) {
          if (!mine.owns(r)) continue;
          const i32 j = mine.first_row + r;
          dk[r] = fma_rn_f64(ld_shared_f64(pair_at(shared, 0, i, j)), q, dk[r]);
          dk_weight[r] = fma_rn_f64(ld_shared_f64(pair_at(shared, 1, i, j)), absolute(q), dk_weight[r]);
          dv[r] = fma_rn_f64(ld_shared_f64(pair_at(shared, 2, i, j)), d_o, dv[r]);
          dv_weight[r] = fma_rn_f64(ld_shared_f64(pair_at(shared, 3, i, j)), absolute(d_o), dv_weight[r]);
        }
      }
      bar_sync();
    }
  }

  const i64 elements = batch_of_tensors(args) * heads_kv * args.seq_kv * kHeadDim;
#pragma unroll
  for (i32 r = 0; r < kRowsOfThread; ++r) {
    const i32 j = mine.first_row + r;
    if (j >= keys) continue;
    const i64 index = (first_index + j) * kHeadDim + mine.column;
    st_global_f64(args.d_k_fp64 + index, scale * dk[r]);
    st_global_f64(args.d_k_fp64 + elements + index, scale * dk_weight[r]);
    st_global_f64(args.d_v_fp64 + index, dv[r]);
    st_global_f64(args.d_v_fp64 + elements + index, dv_weight[r]);
  }
  if (query < kTile) {
    st_shared_f64(pair_at(shared, 0, query, key), dk_noise);
    st_shared_f64(pair_at(shared, 1, query, key), dv_noise);
  }
  bar_sync();
  if (thread < keys) {
    double of_dk = 0, of_dv = 0;
    for (i32 i = 0; i < kTile; ++i) {
      of_dk += ld_shared_f64(pair_at(shared, 0, i, thread));
      of_dv += ld_shared_f64(pair_at(shared, 1, i, thread));
    }
    double* const partial = static_cast<double*>(args.partials) + 2 * (first_index + thread);
    st_global_f64(partial, of_dk);
    st_global_f64(partial + 1, of_dv);
  }
}
//% include primitives/entry/${target}
