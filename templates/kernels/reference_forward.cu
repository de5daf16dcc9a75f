// Attention forward in double precision for one query of one head, in the plainest way that is right:
//
//   s_j = ${score_formula}     for the keys j that the query attends to
//   m = max s_j           p_j = exp(s_j - m)           l = Σ p_j
//   o = Σ p_j v_j / l     weight = Σ (p_j + n) |v_j| / l     LSE = m + ln l     n: ${smallest_normal}
//
// Keys come in chunks, one key for each thread; sums of earlier chunks are rescaled when m grows. A query that attends to no key, as one does
// that is behind the last one of its sequence, has o = 0, weight = 0, LSE = -inf.
//% if dropout
//
// Dropout keeps some of the p_j in o and weight, divided by the share of them.
//% end
//% if sink
//
// The head's sink is one more score s_j, whose v_j is 0.
//% end
//
// shared memory:   q [kHeadDim]   p [kThreads]   reduction [kThreads]${share_words}     doubles, ${shared_bytes} bytes in all

//% include primitives/mma_sync

struct Arguments {
//% for argument_fields
  ${argument_fields.type} ${argument_fields.name};
//% end
};
constexpr u32 kArgumentBytes = ${argument_bytes};

constexpr i32 kHeadDim = ${head_dim}, kThreads = ${threads};
constexpr double kSmallestNormal = ${smallest_normal};
constexpr i32 kColumns = (kHeadDim + kThreads - 1) / kThreads;  // of o, for each thread: thread_index() + c * kThreads

constexpr u32 kDouble = sizeof(double);
constexpr u32 kQueryOffset = 0, kProbabilityOffset = kHeadDim * kDouble, kReductionOffset = kProbabilityOffset + kThreads * kDouble;
//% if dropout
constexpr u32 kShareOffset = kReductionOffset + kThreads * kDouble;
static_assert(kShareOffset + kThreads * kDouble == ${shared_bytes});
//% else
static_assert(kReductionOffset + kThreads * kDouble == ${shared_bytes});
//% end
static_assert((kThreads & (kThreads - 1)) == 0, "reductions halve");

// Where this CTA's query is. Queries of a head are neighbours in the grid, then come the heads, then the batch.
struct QueryRow {
  i32 row, head;
  i64 batch;

  __device__ __forceinline__ explicit QueryRow(const Arguments& args) {
    const u32 batch_head = block_index() / args.seq_q;
    row = block_index() % args.seq_q;
    head = batch_head % args.heads_q;
    batch = batch_head / args.heads_q;
  }
};

//% include oracle/attended_keys
//% include oracle/score_${score}
//% include oracle/added_score
//% if dropout
//% include oracle/dropout
//% end

__device__ __forceinline__ double load_element(const u16* from) { return cvt_f64_${dtype}(ld_global_b16(from)); }
__device__ __forceinline__ double absolute(double x) { return x < 0 ? -x : x; }

struct Sum {
  static __device__ __forceinline__ double of(double a, double b) { return a + b; }
};
struct Maximum {
  static __device__ __forceinline__ double of(double a, double b) { return max_f64(a, b); }
};

// Reduces x over the CTA, by halves, in a fixed order; every thread receives the result.
template <typename Operation>
__device__ __forceinline__ double reduce_threads(u32 shared, double x) {
  const u32 mine = shared + kReductionOffset + thread_index() * kDouble;
  st_shared_f64(mine, x);
  for (u32 half = kThreads / 2; half > 0; half /= 2) {
    bar_sync();
    if (thread_index() < half) st_shared_f64(mine, Operation::of(ld_shared_f64(mine), ld_shared_f64(mine + half * kDouble)));
  }
  bar_sync();
  const double result = ld_shared_f64(shared + kReductionOffset);
  bar_sync();
  return result;
}

// q·k of the query in shared memory.
__device__ __forceinline__ double dot_query(u32 shared, const u16* key) {
  double dot = 0;
  for (i32 d = 0; d < kHeadDim; ++d) dot = fma_rn_f64(ld_shared_f64(shared + kQueryOffset + d * kDouble), load_element(key + d), dot);
  return dot;
}

// What the chunks so far add up to, relative to their maximum; a thread holds its columns of o and weight.
struct RunningSoftmax {
  double maximum = negative_infinity_f64(), sum = 0;
  double o[kColumns] = {}, weight[kColumns] = {}, magnitude[kColumns] = {};  // magnitude: Σ |v_j|

  // One chunk: `score` is that of this thread's key, -inf where there is none; `values` is the first of the `count` rows of V.
//% if dropout
  // share: what the key's probability counts after dropout.
  __device__ __forceinline__ void add_chunk(u32 shared, double score, double share, const u16* values, i64 stride_row, i32 count) {
//% else
  __device__ __forceinline__ void add_chunk(u32 shared, double score, const u16* values, i64 stride_row, i32 count) {
//% end
    const double new_maximum = max_f64(maximum, reduce_threads<Maximum>(shared, score));
    const double finite = new_maximum == negative_infinity_f64() ? 0 : new_maximum;  // there was nothing but hidden keys so far
    const double rescale = exp_f64(maximum - finite), p = exp_f64(score - finite);
//% if dropout
    st_shared_f64(shared + kProbabilityOffset + thread_index() * kDouble, p);
    st_shared_f64(shared + kShareOffset + thread_index() * kDouble, share);
//% else
    st_shared_f64(shared + kProbabilityOffset + thread_index() * kDouble, p);
//% end
    sum = sum * rescale + reduce_threads<Sum>(shared, p);
    maximum = new_maximum;
#pragma unroll
    for (i32 c = 0; c < kColumns; ++c) {
      o[c] *= rescale;
      weight[c] *= rescale;
      const i32 column = thread_index() + c * kThreads;
      if (column < kHeadDim) add_column(c, shared, values + column, stride_row, count);
    }
    bar_sync();
  }

//% if sink
  // One more score, of no value.
  __device__ __forceinline__ void add_sink(double sink) {
    const double new_maximum = max_f64(maximum, sink);
    const double rescale = exp_f64(maximum - new_maximum);
    sum = sum * rescale + exp_f64(sink - new_maximum);
    maximum = new_maximum;
#pragma unroll
    for (i32 c = 0; c < kColumns; ++c) {
      o[c] *= rescale;
      weight[c] *= rescale;
    }
  }

//% end
 private:
  __device__ __forceinline__ void add_column(i32 c, u32 shared, const u16* value, i64 stride_row, i32 count) {
    for (i32 j = 0; j < count; ++j, value += stride_row) {
//% if dropout
      const double share = ld_shared_f64(shared + kShareOffset + j * kDouble), p = share * ld_shared_f64(shared + kProbabilityOffset + j * kDouble), v = load_element(value);
//% else
      const double p = ld_shared_f64(shared + kProbabilityOffset + j * kDouble), v = load_element(value);
//% end
      o[c] = fma_rn_f64(p, v, o[c]);
      weight[c] = fma_rn_f64(p, absolute(v), weight[c]);
//% if dropout
      magnitude[c] += share * absolute(v);
//% else
      magnitude[c] += absolute(v);
//% end
    }
  }
};

__device__ __forceinline__ void store_results(const Arguments& args, const QueryRow& query, const RunningSoftmax& softmax) {
  const bool attends = softmax.sum != 0;  // the largest p is 1; a NaN must be seen, not hidden
  const i64 row = (query.batch * args.heads_q + query.head) * args.seq_q + query.row;
#pragma unroll
  for (i32 c = 0; c < kColumns; ++c) {
    const i32 column = thread_index() + c * kThreads;
    if (column >= kHeadDim) continue;
    st_global_f64(args.o_fp64 + row * kHeadDim + column, attends ? softmax.o[c] / softmax.sum : 0);
    st_global_f64(args.weight_fp64 + row * kHeadDim + column, attends ? fma_rn_f64(kSmallestNormal, softmax.magnitude[c], softmax.weight[c]) / softmax.sum : 0);
  }
  if (thread_index() == 0) {
    st_global_f64(args.lse_fp64 + row, attends ? softmax.maximum + log_f64(softmax.sum) : negative_infinity_f64());
  }
}

extern "C" __global__ void __launch_bounds__(kThreads) ${entry}(const __grid_constant__ Arguments args) {
  const QueryRow query(args);
  const i32 head_kv = query.head / args.group_size;
  const SequenceRows rows = sequence_of_query(args, query.batch, query.row);
  const i32 position = query.row - rows.first_query;  // in the sequence
  const AttendedKeys keys = position < rows.queries ? attended_keys(args, rows, position) : AttendedKeys{0, 0};
  const u16* q = static_cast<const u16*>(args.q) + query.batch * args.q_stride_batch + query.head * args.q_stride_head +
                 query.row * args.q_stride_row;
  const u16* k = static_cast<const u16*>(args.k) + query.batch * args.k_stride_batch + head_kv * args.k_stride_head + rows.first_key * args.k_stride_row;
  const u16* v = static_cast<const u16*>(args.v) + query.batch * args.v_stride_batch + head_kv * args.v_stride_head + rows.first_key * args.v_stride_row;
  const u32 shared = shared_base();

  for (i32 d = thread_index(); d < kHeadDim; d += kThreads) {
    st_shared_f64(shared + kQueryOffset + d * kDouble, load_element(q + d));
  }
  bar_sync();

  RunningSoftmax softmax;
  for (i32 first = keys.begin; first < keys.end; first += kThreads) {
    const i32 count = keys.end - first < kThreads ? keys.end - first : kThreads;
    const i32 mine = thread_index();
    const double score = mine < count ? scaled_score(args, dot_query(shared, k + (first + mine) * args.k_stride_row)) + added_score(args, rows, rows.batch, query.head, position, first + mine)
                                      : negative_infinity_f64();
    softmax.add_chunk(shared, score${and_share}, v + first * args.v_stride_row, args.v_stride_row, count);
  }
//% if sink
  softmax.add_sink(static_cast<double>(ld_global_f32(args.sinks + query.head)));
//% end
  store_results(args, query, softmax);
}
//% include primitives/entry/${target}
