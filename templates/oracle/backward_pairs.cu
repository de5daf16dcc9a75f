// What both kernels of the gradients' reference share: tiles of kTile rows in shared memory, as doubles, and the pairs of a tile of queries
// and a tile of keys, of which each of the first kTile² threads has one.
constexpr u32 kDouble = sizeof(double), kRowStride = (kHeadDim + 1) * kDouble;  // rows apart by an odd number of doubles meet no bank twice
constexpr u32 kTileBytes = kTile * kRowStride, kPairBytes = kTile * kTile * kDouble;
constexpr u32 kQueryOffset = 0, kGradientOffset = kTileBytes, kKeyOffset = 2 * kTileBytes, kValueOffset = 3 * kTileBytes;
constexpr u32 kPairOffset = 4 * kTileBytes;  // kPairValues numbers of each pair
static_assert(kPairOffset + kPairValues * kPairBytes == ${shared_bytes});
static_assert(kTile * kTile <= kThreads && kHeadDim <= kThreads);

// A thread's columns of a tile: one of kHeadDim, in kRowsOfThread rows.
constexpr i32 kGroups = kThreads / kHeadDim < kTile ? kThreads / kHeadDim : kTile;
constexpr i32 kRowsOfThread = (kTile + kGroups - 1) / kGroups;
struct Column {
  i32 column = thread_index() % kHeadDim, first_row = static_cast<i32>(thread_index() / kHeadDim) * kRowsOfThread;
  __device__ __forceinline__ bool owns(i32 r) const { return first_row + r < kTile; }
};

__device__ __forceinline__ double absolute(double x) { return x < 0 ? -x : x; }

__device__ __forceinline__ double at(u32 tile, i32 row, i32 column) { return ld_shared_f64(tile + row * kRowStride + column * kDouble); }
__device__ __forceinline__ u32 pair_at(u32 shared, i32 value, i32 query, i32 key) {
  return shared + kPairOffset + value * kPairBytes + (query * kTile + key) * kDouble;
}

// The first `count` of kTile rows of a tensor; the others are zeros.
__device__ __forceinline__ void load_rows(u32 tile, const void* tensor, i64 offset, i64 stride_row, i32 count) {
  const u16* first = static_cast<const u16*>(tensor) + offset;
  for (i32 e = thread_index(); e < kTile * kHeadDim; e += kThreads) {
    const i32 row = e / kHeadDim, column = e % kHeadDim;
    st_shared_f64(tile + row * kRowStride + column * kDouble, row < count ? cvt_f64_${dtype}(ld_global_b16(first + row * stride_row + column)) : 0);
  }
}

//% include oracle/attended_keys
//% include oracle/tiles_of_${tiles_of}
//% include oracle/score_${score}
//% include oracle/score_slope_${score}
//% include oracle/added_score
//% if dropout
//% include oracle/dropout
//% end

// What the keys of a query share, all heads' rows counted. Errors are over the unit roundoff, the likely one squared.
struct RowStatistics {
  double lse, delta, delta_error, delta_noise;
  static constexpr i32 kStored = 3;

  __device__ __forceinline__ static RowStatistics load(const Arguments& args, i64 row) {
    const double* from = args.row_statistics + kStored * row;
    return {ld_global_f64(args.lse_fp64 + row), ld_global_f64(from), ld_global_f64(from + 1), ld_global_f64(from + 2)};
  }
};

// A query and a key in shared memory, by their rows of the tiles. added: as added_score() says; share: what P counts in O and dV, and dP in dS.
struct Pair {
  double p = 0, slope = 0;      // slope: p times the derivative of the score
  double ds = 0, weight = 0;    // weight: what the error of ds is relative to
  double lost = 0;              // of ds, where p or ds is so small that the type holds few of its bits, and by the score's tanh
  double q_squares = 0, k_squares = 0, d_o_squares = 0;

  __device__ __forceinline__ Pair(const Arguments& args, u32 shared, i32 query, i32 key, const RowStatistics& row, double added, double share) {
    double score = 0, dp = 0;
    for (i32 d = 0; d < kHeadDim; ++d) {
      const double q = at(shared + kQueryOffset, query, d), k = at(shared + kKeyOffset, key, d);
      const double d_o = at(shared + kGradientOffset, query, d), v = at(shared + kValueOffset, key, d);
      score = fma_rn_f64(q, k, score);
      dp = fma_rn_f64(d_o, v, dp);
      q_squares = fma_rn_f64(q, q, q_squares);
      k_squares = fma_rn_f64(k, k, k_squares);
      d_o_squares = fma_rn_f64(d_o, d_o, d_o_squares);
    }
    if (row.lse <= -0x1p100) return;  // all keys are hidden, or the bias leaves nothing of a score: there is no gradient
    p = exp_f64(scaled_score(args, score) + added - row.lse);
    const double derivative = score_slope(args, score);
    slope = p * derivative;
    const double difference = share * dp - row.delta;
    ds = slope * difference;
//% if dropout
    const double step_of_ds = 1 / (1 - static_cast<double>(args.dropout));  // kernels divide by the share that is kept what they have rounded
//% else
    constexpr double step_of_ds = 1;
//% end
    lost = args.smallest_step * (step_of_ds + absolute(difference)) + kSlopeError * (1 - derivative) * p * absolute(difference);
    weight = absolute(ds) + lost / args.unit_roundoff + slope * row.delta_error / 2;
    p *= share;  // as it goes into O and dV
  }
};
