// attune backward bf16 d128 sink packed sm90 q64 kv128 st3 overlap=within dq=atomic · source 38552412273ddf18
//
// Computes the gradient of each query head's sink from LSE and what another kernel has left of each query:
//
//   dsink = -Σ exp(sink - LSE)·delta     over all queries of the head, in all batch entries
//
// A CTA has a head. The order of the sum is fixed: a lane adds the queries of its warp's blocks that are its own, then
// the CTA what its threads have. A query that has no part in the sum, as it sees nothing, not even a sink, or is none,
// has delta = 0; its LSE may be anything.

namespace attune_4d822c2c4fc51eb4 {

// #region primitives: of PTX, the instructions that this kernel uses
using i32 = int;
using u32 = unsigned int;
using i64 = long long;

constexpr u32 kWarpSize = 32;
constexpr u32 kAllLanes = 0xffffffffu;

__device__ __forceinline__ u32 lane_index() { return threadIdx.x % kWarpSize; }
__device__ __forceinline__ u32 block_index() { return blockIdx.x; }    // of the CTA in the grid

// The same in all lanes of a warp, and known to the compiler as such.
__device__ __forceinline__ u32 warp_index() { return __shfl_sync(kAllLanes, threadIdx.x / kWarpSize, 0); }

// Address of the CTA's dynamic shared memory in the shared window; all shared addresses are such 32-bit numbers.
__device__ __forceinline__ u32 shared_base() {
  extern __shared__ __align__(1024) unsigned char dynamic_shared[];
  return static_cast<u32>(__cvta_generic_to_shared(dynamic_shared));
}

__device__ __forceinline__ void st_global_f32(void* to, float x) {
  asm volatile("st.global.f32 [%0], %1;" ::"l"(to), "f"(x) : "memory");
}

__device__ __forceinline__ void st_shared_b32(u32 to, u32 x) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(x) : "memory");
}
__device__ __forceinline__ u32 ld_shared_b32(u32 from) {
  u32 r;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(r) : "r"(from) : "memory");
  return r;
}

// Memory that the kernel itself writes: no .nc, whose cache may hold what was there before.
__device__ __forceinline__ float ld_weak_global_f32(const float* from) {
  float r;
  asm volatile("ld.weak.global.f32 %0, [%1];" : "=f"(r) : "l"(from) : "memory");
  return r;
}

__device__ __forceinline__ i32 ld_global_i32(const i32* from) {
  i32 r;
  asm volatile("ld.global.nc.s32 %0, [%1];" : "=r"(r) : "l"(from));
  return r;
}
__device__ __forceinline__ float ld_global_f32(const float* from) {
  float r;
  asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(r) : "l"(from));
  return r;
}

// x of the lane whose index differs in the bits of kMask.
template <int kMask>
__device__ __forceinline__ float shfl_sync_bfly_f32(float x) {
  float r;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=f"(r) : "f"(x), "n"(kMask));
  return r;
}

// The number of the highest bit that is set in x, which is not 0.
__device__ __forceinline__ u32 bfind_b32(u32 x) {
  u32 r;
  asm("bfind.u32 %0, %1;" : "=r"(r) : "r"(x));
  return r;
}

// The bits that are set in any lane's x. The compiler knows that a warp's lanes have the same result, as it does not
// know of a shuffle's.
__device__ __forceinline__ u32 redux_sync_or_b32(u32 x) {
  u32 r;
  asm volatile("redux.sync.or.b32 %0, %1, 0xffffffff;" : "=r"(r) : "r"(x));
  return r;
}

__device__ __forceinline__ float fma_rn_f32(float a, float b, float c) { return __fmaf_rn(a, b, c); }

__device__ __forceinline__ float ex2_approx_ftz_f32(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

__device__ __forceinline__ u32 f32_to_bits(float x) { return __float_as_uint(x); }
// By an instruction: where the compiler saw through it, accumulators of wgmma became integers, which it copied.
__device__ __forceinline__ float bits_to_f32(u32 x) {
  float r;
  asm("mov.b32 %0, %1;" : "=f"(r) : "r"(x));
  return r;
}

// All threads of the CTA.
__device__ __forceinline__ void bar_sync() { asm volatile("bar.sync 0;" ::: "memory"); }

// Programmatic dependent launch, compute capability 9.0 and newer: the launch that follows in the stream may begin, if
// it was made so, when each CTA has said the first or has ended; behind the second it sees all that this one wrote.
__device__ __forceinline__ void griddepcontrol_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
// #endregion

struct Arguments {
  const float* sinks;
  float* lse;
  float* d_sinks;
  float* statistics;
  i32 batch;
  i32 heads_q;
  i32 seq_q;
  i32 query_tiles;
  const i32* seqused_q;
  const i32* seqused_kv;
  const i32* cu_seqlens_q;
  const i32* cu_seqlens_kv;
  i32 seq_kv;
};
constexpr u32 kArgumentBytes = 88;

constexpr i32 kRows = 64, kThreads = 1024, kWarps = kThreads / kWarpSize;
constexpr u32 kFloat = sizeof(float);
constexpr float kLog2E = 1.44269504088896340736f;
static_assert(kWarps <= kWarpSize && kWarps * kFloat == 128);

// Whose rows a tile works on. Here the sequences lie one behind the other: as the call says in the device's memory,
// sequence b is the rows from cu_seqlens[b] up to, and without, cu_seqlens[b + 1], of which the first ones count, as
// many as the call says, all of them where it says nothing. What lies behind, and what lies in other sequences, reaches
// no result. Rows behind the last sequence are stored with it and do not count.
struct Sequence {
  i32 batch, first_query, queries, first_key, keys;
  i32 stored_queries, stored_keys;  // also those that do not count

  Sequence() = default;
  __device__ __forceinline__ Sequence(const Arguments& args, i32 batch) : batch(batch) {
    const bool is_last = batch == args.batch - 1;
    const i32 end_of_queries = begin_of(args.cu_seqlens_q, batch + 1, args.seq_q),
        end_of_keys = begin_of(args.cu_seqlens_kv, batch + 1, args.seq_kv);
    first_query = begin_of(args.cu_seqlens_q, batch, args.seq_q);
    queries = used_rows(args.seqused_q, batch, rows_between(first_query, end_of_queries));
    stored_queries = rows_between(first_query, is_last ? args.seq_q : end_of_queries);
    first_key = begin_of(args.cu_seqlens_kv, batch, args.seq_kv);
    keys = used_rows(args.seqused_kv, batch, rows_between(first_key, end_of_keys));
    stored_keys = rows_between(first_key, is_last ? args.seq_kv : end_of_keys);
  }

  // The elements between the first one of a tensor and the first one of the sequence, for tensors of queries and of
  // keys.
  __device__ __forceinline__ i64 query_offset(i64 /*stride_batch*/, i64 stride_row) const {
    return first_query * stride_row;
  }
  __device__ __forceinline__ i64 key_offset(i64 /*stride_batch*/, i64 stride_row) const {
    return first_key * stride_row;
  }
  // Those before its plane of a tensor of pairs.
  __device__ __forceinline__ i64 pair_offset(i64 stride_batch) const { return batch * stride_batch; }

  // Whatever the numbers say, no row that is not there is touched.
  __device__ __forceinline__ static i32 begin_of(const i32* begins, i32 batch, i32 all) {
    const i32 row = ld_global_i32(begins + batch);
    return row < 0 ? 0 : row < all ? row : all;
  }

 private:
  __device__ __forceinline__ static i32 rows_between(i32 begin, i32 end) { return begin < end ? end - begin : 0; }
  __device__ __forceinline__ static i32 used_rows(const i32* counts, i32 batch, i32 stored) {
    if (counts == nullptr) return stored;
    const i32 rows = ld_global_i32(counts + batch);
    return rows < 0 ? 0 : rows < stored ? rows : stored;
  }
};
__device__ __forceinline__ i32 query_count(const Arguments&, const Sequence& sequence) { return sequence.queries; }
__device__ __forceinline__ i32 stored_queries(const Arguments&, const Sequence& sequence) {
  return sequence.stored_queries;
}
__device__ __forceinline__ i32 stored_keys(const Arguments&, const Sequence& sequence) { return sequence.stored_keys; }

// The rows of a head in a tensor without columns, such as LSE, which is packed: (heads, queries of all sequences); and
// the place of a row there.
__device__ __forceinline__ i64 packed_query_row(const Arguments& args, const Sequence& sequence, i32 head, i64 row) {
  return static_cast<i64>(head) * args.seq_q + sequence.first_query + row;
}

// A head's tiles of `rows` rows each, of all sequences, and so the blocks of rows that it has in workspaces. Sequence
// b's begin at number cu_seqlens[b] / rows + b, those of the first one at 0: so many are enough for the ones before,
// whatever their lengths, and no sum over them is needed. Some numbers are of no tile: there is no row from their first
// one on.
__device__ __forceinline__ i32 first_tile_of(i32 sequence, i32 begin, i32 rows) {
  return sequence == 0 ? 0 : begin / rows + sequence;
}

// The lanes of a warp look together, all for the same number: each at one of the sequences that are in question, or of
// as many as there are lanes that divide them. So few loads wait for each other.
struct TileOfSequence {
  i32 batch, tile;

  __device__ __forceinline__ TileOfSequence(const i32* begins, i32 sequences, i32 all, i32 number, i32 rows) {
    const auto first_tile = [&](i32 sequence) {
      return first_tile_of(sequence, Sequence::begin_of(begins, sequence, all), rows);
    };
    batch = 0;             // the last one whose first tile is not behind this one, or a sequence before that
    i32 left = sequences;  // in question, from `batch` on
    while (left > 1) {
      const i32 apart = (left - 1) / kWarpSize + 1, place = static_cast<i32>(lane_index()) * apart;
      const bool begun = place < left && first_tile(batch + place) <= number;
      const i32 last = apart * static_cast<i32>(bfind_b32(redux_sync_or_b32(begun ? 1u << lane_index() : 0)));
      batch += last;
      left = left - last < apart ? left - last : apart;
    }
    tile = number - first_tile(batch);
  }
};
// Delta of query r of a block of kRows: deltas are behind all LSE, those of sixteen queries as lanes of fragments hold
// columns.
__device__ __forceinline__ float delta_of(const float* statistics_of_block, i32 r) {
  return ld_weak_global_f32(statistics_of_block + kRows + r / 16 * 16 + r % 8 / 2 * 4 + r % 16 / 8 * 2 + r % 2);
}

__device__ __forceinline__ float warp_sum(float x) {
  x += shfl_sync_bfly_f32<16>(x);
  x += shfl_sync_bfly_f32<8>(x);
  x += shfl_sync_bfly_f32<4>(x);
  x += shfl_sync_bfly_f32<2>(x);
  return x + shfl_sync_bfly_f32<1>(x);
}

__device__ __forceinline__ float with_query(float sum, float sink, float lse, float delta) {
  // LSE is the sink itself where that is all: the difference is exact.
  const float p = delta != 0 ? ex2_approx_ftz_f32((sink - lse) * kLog2E) : 0.0f;
  return fma_rn_f32(-p, delta, sum);
}

extern "C" __global__ void __launch_bounds__(kThreads) attune_backward_sinks(const __grid_constant__ Arguments args) {
  const i32 head = static_cast<i32>(block_index());
  const u32 warp = warp_index(), lane = lane_index(), shared = shared_base();
  const float sink = ld_global_f32(args.sinks + head);
  // A warp takes one block of queries after the other, of all sequences.
  float sum = 0;
  for (i32 block = static_cast<i32>(warp); block < args.query_tiles; block += static_cast<i32>(kWarps)) {
    const TileOfSequence found(args.cu_seqlens_q, args.batch, args.seq_q, block, kRows);
    const Sequence sequence(args, found.batch);
    const i32 first_query = found.tile * kRows, left = query_count(args, sequence) - first_query,
        rows = left < kRows ? left : kRows;
    const float* const statistics = args.statistics + 2 * kRows * (static_cast<i64>(head) * args.query_tiles + block);
    for (i32 row = static_cast<i32>(lane); row < rows; row += kWarpSize)
      sum = with_query(sum, sink, ld_global_f32(args.lse + packed_query_row(args, sequence, head, first_query + row)),
          delta_of(statistics, row));
  }
  sum = warp_sum(sum);
  if (lane == 0) st_shared_b32(shared + kFloat * warp, f32_to_bits(sum));
  bar_sync();
  if (warp != 0) return;
  sum = warp_sum(lane < kWarps ? bits_to_f32(ld_shared_b32(shared + kFloat * lane)) : 0.0f);
  if (lane == 0) st_global_f32(args.d_sinks + head, sum);
  griddepcontrol_wait();  // a launch ends no earlier than the one before it, beside which this one has run
}
static_assert(sizeof(Arguments) == kArgumentBytes, "the host packs the arguments as this compiler lays them out");

}  // namespace attune_4d822c2c4fc51eb4
