// The gradient of a bias in double precision, in the plainest way that is right: an element of the bias for each thread,
//
//   dbias = Σ p (dp - delta)     over the batch entries, heads and queries along which the bias repeats
//
//   p = exp(s - LSE)     s = ${score_formula}     dp = dO·v
//
// and beside it the weights that its bounds are relative to, and the noise of each tile's pairs. A tile is of kTile queries and kTile keys of a plane of the bias.
//
// shared memory:   each thread's noise, ${shared_bytes} bytes in all

//% include primitives/mma_sync

struct Arguments {
//% for argument_fields
  ${argument_fields.type} ${argument_fields.name};
//% end
};
constexpr u32 kArgumentBytes = ${argument_bytes};

constexpr i32 kHeadDim = ${head_dim}, kThreads = ${threads}, kTile = ${rows_per_tile};
static_assert(kTile * kTile == kThreads && 8 * kThreads == ${shared_bytes});

//% include oracle/attended_keys
//% include oracle/score_${score}
//% include oracle/score_slope_${score}
//% include oracle/added_score
//% if dropout
//% include oracle/dropout
//% end

__device__ __forceinline__ double absolute(double x) { return x < 0 ? -x : x; }

// A row of a tensor.
__device__ __forceinline__ const u16* row_of(const void* tensor, i64 batch, i32 head, i32 row, i64 stride_batch, i64 stride_head, i64 stride_row) {
  return static_cast<const u16*>(tensor) + batch * stride_batch + head * stride_head + row * stride_row;
}
__device__ __forceinline__ double dot_rows(const u16* a, const u16* b) {
  double sum = 0;
  for (i32 d = 0; d < kHeadDim; ++d) sum = fma_rn_f64(cvt_f64_${dtype}(ld_global_b16(a + d)), cvt_f64_${dtype}(ld_global_b16(b + d)), sum);
  return sum;
}

struct Element {
  double value = 0, weight = 0, noise = 0;
};

// That of a key and of a row of a plane of the bias.
__device__ __forceinline__ Element element_at(const Arguments& args, i32 plane, i32 row, i32 key) {
  const bool all_batch = args.bias_batch == 1, all_heads = args.bias_heads == 1, all_rows = args.bias_rows == 1;
  const i32 of_batch = all_batch ? 0 : plane / args.bias_heads, of_head = all_heads ? 0 : plane % args.bias_heads;
  Element element;
  for (i32 batch = of_batch; batch < (all_batch ? args.batch : of_batch + 1); ++batch) {
    const SequenceRows rows(args, batch);
    for (i32 head = of_head; head < (all_heads ? args.heads_q : of_head + 1); ++head) {
      for (i32 query = all_rows ? 0 : row; query < (all_rows ? rows.queries : row + 1); ++query) {
        if (query >= rows.queries || !attended_keys(args, rows, query).has(key)) continue;
        const i64 entry = rows.batch_of_rows(), place = (entry * args.heads_q + head) * args.seq_q + rows.first_query + query;
        const double lse = ld_global_f64(args.lse_fp64 + place);
        if (lse <= -0x1p100) continue;  // all keys are hidden, or the bias leaves nothing of a score: there is no gradient
        const i32 head_kv = head / args.group_size;
        const i32 query_row = rows.first_query + query, key_row = rows.first_key + key;
        const double product = dot_rows(row_of(args.q, entry, head, query_row, args.q_stride_batch, args.q_stride_head, args.q_stride_row),
                                        row_of(args.k, entry, head_kv, key_row, args.k_stride_batch, args.k_stride_head, args.k_stride_row));
        const double dp = dot_rows(row_of(args.d_o, entry, head, query_row, args.d_o_stride_batch, args.d_o_stride_head, args.d_o_stride_row),
                                   row_of(args.v, entry, head_kv, key_row, args.v_stride_batch, args.v_stride_head, args.v_stride_row));
        const double p = exp_f64(scaled_score(args, product) + added_score(args, rows, batch, head, query, key) - lse);
        const double delta = ld_global_f64(args.row_statistics + 3 * place), delta_error = ld_global_f64(args.row_statistics + 3 * place + 1);
//% if dropout
        const double difference = kept_share(args, static_cast<i64>(batch) * args.heads_q + head, query, key) * dp - delta;
//% else
        const double difference = dp - delta;
//% end
        const double lost = args.smallest_step * (1 + absolute(difference)) + kSlopeError * (1 - score_slope(args, product)) * p * absolute(difference);
        element.value += p * difference;
        element.weight += absolute(p * difference) + lost / args.unit_roundoff + p * delta_error / 2;
        element.noise += p * p * ld_global_f64(args.row_statistics + 3 * place + 2) + lost * lost;
      }
    }
  }
  return element;
}

extern "C" __global__ void __launch_bounds__(kThreads) ${entry}(const __grid_constant__ Arguments args) {
  const i32 key_tile = static_cast<i32>(block_index() % static_cast<u32>(args.key_tiles));
  const u32 rest = block_index() / static_cast<u32>(args.key_tiles), row_tiles = static_cast<u32>((args.bias_rows + kTile - 1) / kTile);
  const i32 plane = static_cast<i32>(rest / row_tiles), row = static_cast<i32>(rest % row_tiles) * kTile + static_cast<i32>(thread_index()) / kTile;
  const i32 key = key_tile * kTile + static_cast<i32>(thread_index()) % kTile;
  double noise = 0;
  if (row < args.bias_rows && key < args.${pair_keys}) {
    const Element element = element_at(args, plane, row, key);
    const i64 elements = static_cast<i64>(args.bias_batch) * args.bias_heads * args.bias_rows * args.${pair_keys};
    const i64 index = (static_cast<i64>(plane) * args.bias_rows + row) * args.${pair_keys} + key;
    st_global_f64(args.d_bias_fp64 + index, element.value);
    st_global_f64(args.d_bias_fp64 + elements + index, element.weight);
    noise = element.noise;
  }
  const u32 mine = shared_base() + thread_index() * 8;
  st_shared_f64(mine, noise);
  for (u32 half = kThreads / 2; half > 0; half /= 2) {
    bar_sync();
    if (thread_index() < half) st_shared_f64(mine, ld_shared_f64(mine) + ld_shared_f64(mine + half * 8));
  }
  if (thread_index() == 0) st_global_f64(static_cast<double*>(args.partials) + block_index(), ld_shared_f64(mine));
}
//% include primitives/entry/${target}
