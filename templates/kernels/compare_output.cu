// Errors of an output o in ${element} (u is the unit roundoff of what it is computed from, stored that of ${element}; step is half of the smallest number):
//
//   error = |o - ref|      bound = 2u weight + stored |ref| + step      ratio = error / bound
//
// A tile is ${rows_per_tile} rows of a head; a CTA takes every kCtas-th of them and leaves one summary. All sums are taken in a fixed
// order.
//
// shared memory:   of each thread, error_squares, reference_squares, max_abs, worst_ratio, worst_index: ${shared_bytes} bytes in all

//% include primitives/mma_sync

struct Arguments {
//% for argument_fields
  ${argument_fields.type} ${argument_fields.name};
//% end
};
constexpr u32 kArgumentBytes = ${argument_bytes};

constexpr i32 kColumns = ${columns}, kRows = ${rows_per_tile}, kThreads = ${threads}, kCtas = ${max_ctas};
static_assert((kThreads & (kThreads - 1)) == 0, "reductions halve");

__device__ __forceinline__ double absolute(double x) { return x < 0 ? -x : x; }
__device__ __forceinline__ double infinity() { return -negative_infinity_f64(); }

// The host's ErrorSummary, by the same rules.
struct Summary {
  static constexpr u32 kFieldBytes = kThreads * 8;  // of one field in shared memory, of all threads
  static constexpr u32 kBytes = 40;
  static_assert(5 * kFieldBytes == ${shared_bytes});

  double error_squares = 0, reference_squares = 0, max_abs = 0, worst_ratio = 0;
  i64 worst_index = -1;

  __device__ __forceinline__ void add(i64 index, double value, double reference, double bound) {
    double error = absolute(value - reference);
    if (value == reference) error = 0;  // infinities of the same sign
    if (error != error) error = infinity();
    max_abs = max_f64(max_abs, error);
    if (error > worst_ratio * bound) {
      worst_ratio = error / bound;
      worst_index = index;
    }
    error_squares += error * error;
    if (absolute(reference) < infinity()) reference_squares += reference * reference;
  }

  // The first element's of equal ratios stays: threads' elements are interleaved.
  __device__ __forceinline__ void merge(const Summary& other) {
    error_squares += other.error_squares;
    reference_squares += other.reference_squares;
    max_abs = max_f64(max_abs, other.max_abs);
    if (other.worst_ratio > worst_ratio || (other.worst_ratio == worst_ratio && other.worst_index < worst_index)) {
      worst_ratio = other.worst_ratio;
      worst_index = other.worst_index;
    }
  }

  __device__ __forceinline__ void store_shared_at(u32 at) const {
    st_shared_f64(at, error_squares);
    st_shared_f64(at + kFieldBytes, reference_squares);
    st_shared_f64(at + 2 * kFieldBytes, max_abs);
    st_shared_f64(at + 3 * kFieldBytes, worst_ratio);
    st_shared_b64(at + 4 * kFieldBytes, static_cast<u64>(worst_index));
  }
  static __device__ __forceinline__ Summary load_shared_at(u32 at) {
    Summary summary;
    summary.error_squares = ld_shared_f64(at);
    summary.reference_squares = ld_shared_f64(at + kFieldBytes);
    summary.max_abs = ld_shared_f64(at + 2 * kFieldBytes);
    summary.worst_ratio = ld_shared_f64(at + 3 * kFieldBytes);
    summary.worst_index = static_cast<i64>(ld_shared_b64(at + 4 * kFieldBytes));
    return summary;
  }
  __device__ __forceinline__ void store_global_at(char* to) const {
    st_global_f64(to, error_squares);
    st_global_f64(to + 8, reference_squares);
    st_global_f64(to + 16, max_abs);
    st_global_f64(to + 24, worst_ratio);
    st_global_b64(to + 32, static_cast<u64>(worst_index));
  }
};

// This thread's elements of a tile.
__device__ __forceinline__ void add_tile(const Arguments& args, i32 tile, Summary& summary) {
  const i32 batch_head = tile / args.query_tiles, first_row = tile % args.query_tiles * kRows;
  const i64 batch = batch_head / args.heads_q, head = batch_head % args.heads_q;
  const i32 rows = args.seq_q - first_row < kRows ? args.seq_q - first_row : kRows;
  const i64 first_index = (static_cast<i64>(batch_head) * args.seq_q + first_row) * kColumns;
  const ${stored}* o = static_cast<const ${stored}*>(args.o) + batch * args.o_stride_batch + head * args.o_stride_head +
                 first_row * args.o_stride_row;
  for (i32 i = thread_index(); i < rows * kColumns; i += kThreads) {
    const i64 index = first_index + i;
    const double reference = ld_global_f64(args.o_fp64 + index), weight = ld_global_f64(args.weight_fp64 + index);
    const ${stored}* from = o + i / kColumns * args.o_stride_row + i % kColumns;
    const double value = ${value};
    // Without a softcap roundoffs are powers of two: their products are exact, and it is no matter whether they are contracted.
    const double bound =
        2 * args.unit_roundoff * weight + args.stored_roundoff * absolute(reference) + args.smallest_step;
    summary.add(index, value, reference, bound);
  }
}

extern "C" __global__ void __launch_bounds__(kThreads) ${entry}(const __grid_constant__ Arguments args) {
  Summary summary;
  for (i64 tile = block_index(); tile < args.tiles; tile += kCtas) add_tile(args, static_cast<i32>(tile), summary);

  const u32 mine = shared_base() + thread_index() * 8;
  summary.store_shared_at(mine);
  for (u32 half = kThreads / 2; half > 0; half /= 2) {
    bar_sync();
    if (thread_index() >= half) continue;
    summary.merge(Summary::load_shared_at(mine + half * 8));
    summary.store_shared_at(mine);
  }
  if (thread_index() == 0) summary.store_global_at(static_cast<char*>(args.partials) + block_index() * Summary::kBytes);
}
//% include primitives/entry/${target}
