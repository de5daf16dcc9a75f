// attune reference forward fp16 d40 causal packed · source 4256314ecfda3676
//
// Attention forward in double precision for one query of one head, in the plainest way that is right:
//
//   s_j = scale q·k_j     for the keys j that the query attends to
//   m = max s_j           p_j = exp(s_j - m)           l = Σ p_j
//   o = Σ p_j v_j / l     weight = Σ (p_j + n) |v_j| / l     LSE = m + ln l     n: 0x1p-14
//
// Keys come in chunks, one key for each thread; sums of earlier chunks are rescaled when m grows. A query that attends
// to no key, as one does that is behind the last one of its sequence, has o = 0, weight = 0, LSE = -inf.
//
// shared memory:   q [kHeadDim]   p [kThreads]   reduction [kThreads]     doubles, 2368 bytes in all

namespace attune_a975f5aa594ca41e {

// #region primitives: of PTX, the instructions that this kernel uses
using i32 = int;
using u16 = unsigned short;
using u32 = unsigned int;
using i64 = long long;

__device__ __forceinline__ u32 thread_index() { return threadIdx.x; }  // in the CTA
__device__ __forceinline__ u32 block_index() { return blockIdx.x; }    // of the CTA in the grid

// Address of the CTA's dynamic shared memory in the shared window; all shared addresses are such 32-bit numbers.
__device__ __forceinline__ u32 shared_base() {
  extern __shared__ __align__(1024) unsigned char dynamic_shared[];
  return static_cast<u32>(__cvta_generic_to_shared(dynamic_shared));
}

__device__ __forceinline__ u16 ld_global_b16(const void* from) {
  u16 r;
  asm volatile("ld.global.nc.b16 %0, [%1];" : "=h"(r) : "l"(from));
  return r;
}
__device__ __forceinline__ void st_global_f64(void* to, double x) {
  asm volatile("st.global.f64 [%0], %1;" ::"l"(to), "d"(x) : "memory");
}

__device__ __forceinline__ void st_shared_f64(u32 to, double x) {
  asm volatile("st.shared.f64 [%0], %1;" ::"r"(to), "d"(x) : "memory");
}
__device__ __forceinline__ double ld_shared_f64(u32 from) {
  double r;
  asm volatile("ld.shared.f64 %0, [%1];" : "=d"(r) : "r"(from) : "memory");
  return r;
}

__device__ __forceinline__ i32 ld_global_i32(const i32* from) {
  i32 r;
  asm volatile("ld.global.nc.s32 %0, [%1];" : "=r"(r) : "l"(from));
  return r;
}

__device__ __forceinline__ double cvt_f64_f16(u16 x) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x));
  return static_cast<double>(r);
}

__device__ __forceinline__ double fma_rn_f64(double a, double b, double c) { return __fma_rn(a, b, c); }
__device__ __forceinline__ double max_f64(double a, double b) { return fmax(a, b); }
__device__ __forceinline__ double exp_f64(double x) { return exp(x); }
__device__ __forceinline__ double log_f64(double x) { return log(x); }
__device__ __forceinline__ double negative_infinity_f64() { return static_cast<double>(__int_as_float(0xff800000)); }

// All threads of the CTA.
__device__ __forceinline__ void bar_sync() { asm volatile("bar.sync 0;" ::: "memory"); }
// #endregion

struct Arguments {
  const void* q;
  const void* k;
  const void* v;
  i64 q_stride_batch;
  i64 q_stride_head;
  i64 q_stride_row;
  i64 k_stride_batch;
  i64 k_stride_head;
  i64 k_stride_row;
  i64 v_stride_batch;
  i64 v_stride_head;
  i64 v_stride_row;
  double* o_fp64;
  double* lse_fp64;
  double* weight_fp64;
  i32 heads_q;
  i32 group_size;
  i32 seq_q;
  i32 seq_kv;
  const i32* seqused_q;
  const i32* seqused_kv;
  const i32* cu_seqlens_q;
  const i32* cu_seqlens_kv;
  i32 batch;
  i32 mask_offset;
  i32 diagonals_move;
  float softmax_scale;
};
constexpr u32 kArgumentBytes = 184;

constexpr i32 kHeadDim = 40, kThreads = 128;
constexpr double kSmallestNormal = 0x1p-14;
constexpr i32 kColumns = (kHeadDim + kThreads - 1) / kThreads;  // of o, for each thread: thread_index() + c * kThreads

constexpr u32 kDouble = sizeof(double);
constexpr u32 kQueryOffset = 0, kProbabilityOffset = kHeadDim * kDouble,
    kReductionOffset = kProbabilityOffset + kThreads * kDouble;
static_assert(kReductionOffset + kThreads * kDouble == 2368);
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

// The rows of one of the sequences that lie one behind the other, and how far the mask's diagonals have moved: with the
// difference of the sequence's ends.
struct SequenceRows {
  i64 batch;
  i32 queries, keys, first_query, first_key;
  i32 stored_queries, stored_keys;  // also those that do not count, of the last sequence all behind it
  i64 moved = 0;

  __device__ __forceinline__ SequenceRows(const Arguments& args, i64 sequence) : batch(sequence) {
    first_query = within(ld_global_i32(args.cu_seqlens_q + batch), args.seq_q);
    first_key = within(ld_global_i32(args.cu_seqlens_kv + batch), args.seq_kv);
    const i32 end_of_keys = within(ld_global_i32(args.cu_seqlens_kv + batch + 1), args.seq_kv);
    queries = counted(args.seqused_q, batch, end_of_queries(args, batch) - first_query);
    keys = counted(args.seqused_kv, batch, end_of_keys - first_key);
    const bool is_last = batch == args.batch - 1;
    stored_queries = (is_last ? args.seq_q : end_of_queries(args, batch)) - first_query;
    stored_keys = (is_last ? args.seq_kv : end_of_keys) - first_key;
    if (args.diagonals_move != 0)
      moved = (static_cast<i64>(keys) - queries) - (static_cast<i64>(args.seq_kv) - args.seq_q);
  }

  // The batch entry of the tensors that has the rows.
  __device__ __forceinline__ i64 batch_of_rows() const { return 0; }
  __device__ __forceinline__ static i32 end_of_queries(const Arguments& args, i64 sequence) {
    return within(ld_global_i32(args.cu_seqlens_q + sequence + 1), args.seq_q);
  }

 private:
  __device__ __forceinline__ static i32 within(i32 row, i32 most) { return row > most ? most : row < 0 ? 0 : row; }
  __device__ __forceinline__ static i32 counted(const i32* said, i64 batch, i32 stored) {
    const i32 most = stored < 0 ? 0 : stored;
    return said == nullptr ? most : within(ld_global_i32(said + batch), most);
  }
};

// The one of a row of all queries: the first that ends behind it. There is one of each row.
__device__ __forceinline__ SequenceRows sequence_of_query(const Arguments& args, i64 /*batch*/, i32 row) {
  i64 sequence = 0;
  while (sequence < args.batch - 1 && SequenceRows::end_of_queries(args, sequence) <= row) ++sequence;
  return SequenceRows(args, sequence);
}

// Keys [begin, end) that a query attends to: said here once more, apart from what the kernels say.
struct AttendedKeys {
  i32 begin, end;
  __device__ __forceinline__ bool has(i32 key) const { return begin <= key && key < end; }
};

__device__ __forceinline__ i32 clamp_to_keys(const SequenceRows& rows, i64 key) {
  return static_cast<i32>(key < 0 ? 0 : key < rows.keys ? key : rows.keys);
}

__device__ __forceinline__ AttendedKeys attended_keys(const Arguments& args, const SequenceRows& rows, i32 query) {
  return {0, clamp_to_keys(rows, query + rows.moved + args.mask_offset + 1)};
}
__device__ __forceinline__ double scaled_score(const Arguments& args, double product) {
  return args.softmax_scale * product;
}
// What a score gains beside its product, of a query and a key of their sequence; -inf where the key is hidden.
__device__ __forceinline__ double added_score(const Arguments& /*args*/, const SequenceRows& /*rows*/, i64 /*batch*/,
    i32 /*head*/, i32 /*query*/, i32 /*key*/) {
  double added = 0;
  return added;
}

__device__ __forceinline__ double load_element(const u16* from) { return cvt_f64_f16(ld_global_b16(from)); }
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
    if (thread_index() < half)
      st_shared_f64(mine, Operation::of(ld_shared_f64(mine), ld_shared_f64(mine + half * kDouble)));
  }
  bar_sync();
  const double result = ld_shared_f64(shared + kReductionOffset);
  bar_sync();
  return result;
}

// q·k of the query in shared memory.
__device__ __forceinline__ double dot_query(u32 shared, const u16* key) {
  double dot = 0;
  for (i32 d = 0; d < kHeadDim; ++d)
    dot = fma_rn_f64(ld_shared_f64(shared + kQueryOffset + d * kDouble), load_element(key + d), dot);
  return dot;
}

// What the chunks so far add up to, relative to their maximum; a thread holds its columns of o and weight.
struct RunningSoftmax {
  double maximum = negative_infinity_f64(), sum = 0;
  double o[kColumns] = {}, weight[kColumns] = {}, magnitude[kColumns] = {};  // magnitude: Σ |v_j|

  // One chunk: `score` is that of this thread's key, -inf where there is none; `values` is the first of the `count`
  // rows of V.
  __device__ __forceinline__ void add_chunk(u32 shared, double score, const u16* values, i64 stride_row, i32 count) {
    const double new_maximum = max_f64(maximum, reduce_threads<Maximum>(shared, score));
    // there was nothing but hidden keys so far
    const double finite = new_maximum == negative_infinity_f64() ? 0 : new_maximum;
    const double rescale = exp_f64(maximum - finite), p = exp_f64(score - finite);
    st_shared_f64(shared + kProbabilityOffset + thread_index() * kDouble, p);
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

 private:
  __device__ __forceinline__ void add_column(i32 c, u32 shared, const u16* value, i64 stride_row, i32 count) {
    for (i32 j = 0; j < count; ++j, value += stride_row) {
      const double p = ld_shared_f64(shared + kProbabilityOffset + j * kDouble), v = load_element(value);
      o[c] = fma_rn_f64(p, v, o[c]);
      weight[c] = fma_rn_f64(p, absolute(v), weight[c]);
      magnitude[c] += absolute(v);
    }
  }
};

__device__ __forceinline__ void store_results(const Arguments& args, const QueryRow& query,
    const RunningSoftmax& softmax) {
  const bool attends = softmax.sum != 0;  // the largest p is 1; a NaN must be seen, not hidden
  const i64 row = (query.batch * args.heads_q + query.head) * args.seq_q + query.row;
#pragma unroll
  for (i32 c = 0; c < kColumns; ++c) {
    const i32 column = thread_index() + c * kThreads;
    if (column >= kHeadDim) continue;
    st_global_f64(args.o_fp64 + row * kHeadDim + column, attends ? softmax.o[c] / softmax.sum : 0);
    st_global_f64(args.weight_fp64 + row * kHeadDim + column,
        attends ? fma_rn_f64(kSmallestNormal, softmax.magnitude[c], softmax.weight[c]) / softmax.sum : 0);
  }
  if (thread_index() == 0) {
    st_global_f64(args.lse_fp64 + row, attends ? softmax.maximum + log_f64(softmax.sum) : negative_infinity_f64());
  }
}

extern "C" __global__ void __launch_bounds__(kThreads)
    attune_reference_forward(const __grid_constant__ Arguments args) {
  const QueryRow query(args);
  const i32 head_kv = query.head / args.group_size;
  const SequenceRows rows = sequence_of_query(args, query.batch, query.row);
  const i32 position = query.row - rows.first_query;  // in the sequence
  const AttendedKeys keys = position < rows.queries ? attended_keys(args, rows, position) : AttendedKeys{0, 0};
  const u16* q = static_cast<const u16*>(args.q) + query.batch * args.q_stride_batch + query.head * args.q_stride_head +
                 query.row * args.q_stride_row;
  const u16* k = static_cast<const u16*>(args.k) + query.batch * args.k_stride_batch + head_kv * args.k_stride_head +
      rows.first_key * args.k_stride_row;
  const u16* v = static_cast<const u16*>(args.v) + query.batch * args.v_stride_batch + head_kv * args.v_stride_head +
      rows.first_key * args.v_stride_row;
  const u32 shared = shared_base();

  for (i32 d = thread_index(); d < kHeadDim; d += kThreads) {
    st_shared_f64(shared + kQueryOffset + d * kDouble, load_element(q + d));
  }
  bar_sync();

  RunningSoftmax softmax;
  for (i32 first = keys.begin; first < keys.end; first += kThreads) {
    const i32 count = keys.end - first < kThreads ? keys.end - first : kThreads;
    const i32 mine = thread_index();
    const double score = mine < count
        ? scaled_score(args, dot_query(shared, k + (first + mine) * args.k_stride_row)) +
        added_score(args, rows, rows.batch, query.head, position, first + mine) : negative_infinity_f64();
    softmax.add_chunk(shared, score, v + first * args.v_stride_row, args.v_stride_row, count);
  }
  store_results(args, query, softmax);
}
static_assert(sizeof(Arguments) == kArgumentBytes, "the host packs the arguments as this compiler lays them out");

}  // namespace attune_a975f5aa594ca41e
