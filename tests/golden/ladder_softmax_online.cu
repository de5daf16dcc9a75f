// attune online forward bf16 d64 sm80 q64 kv64 w4 st1 · source 75379eb832ad242c
//
// Softmax of the rows of S in device memory, in place, a warp for each row:
//
//   m' = max(m, S_j)      l' = l exp(m - m') + exp(S_j - m')      key by key, in one pass
//   P = exp(S - m) / l      LSE = m + ln l
//
// S and m are without the softmax scale: exponentials are taken as exp2(c (S - m)), c = scale·log2(e).

namespace attune_54e6bf52a88838ea {

// #region primitives: of PTX, the instructions that this kernel uses
using i32 = int;
using u32 = unsigned int;
using i64 = long long;

constexpr u32 kWarpSize = 32;
constexpr u32 kAllLanes = 0xffffffffu;

__device__ __forceinline__ float negative_infinity() { return __int_as_float(0xff800000); }
__device__ __forceinline__ u32 lane_index() { return threadIdx.x % kWarpSize; }
__device__ __forceinline__ u32 block_index() { return blockIdx.x; }    // of the CTA in the grid

// The same in all lanes of a warp, and known to the compiler as such.
__device__ __forceinline__ u32 warp_index() { return __shfl_sync(kAllLanes, threadIdx.x / kWarpSize, 0); }

__device__ __forceinline__ void st_global_f32(void* to, float x) {
  asm volatile("st.global.f32 [%0], %1;" ::"l"(to), "f"(x) : "memory");
}

// Memory that the kernel itself writes: no .nc, whose cache may hold what was there before.
__device__ __forceinline__ float ld_weak_global_f32(const float* from) {
  float r;
  asm volatile("ld.weak.global.f32 %0, [%1];" : "=f"(r) : "l"(from) : "memory");
  return r;
}

// x of the lane whose index differs in the bits of kMask.
template <int kMask>
__device__ __forceinline__ float shfl_sync_bfly_f32(float x) {
  float r;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=f"(r) : "f"(x), "n"(kMask));
  return r;
}

__device__ __forceinline__ float fma_rn_f32(float a, float b, float c) { return __fmaf_rn(a, b, c); }
// Clamped to [0, 1]; NaN becomes 0.
__device__ __forceinline__ float max_f32(float a, float b) { return fmaxf(a, b); }

__device__ __forceinline__ float ex2_approx_ftz_f32(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
__device__ __forceinline__ float lg2_approx_ftz_f32(float x) {
  float r;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
__device__ __forceinline__ float rcp_approx_ftz_f32(float x) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
// #endregion

struct Arguments {
  float* scores;
  float* lse;
  i32 heads_q;
  i32 group_size;
  i32 seq_q;
  i32 seq_kv;
  i32 query_tiles;
  i32 mask_offset;
  float softmax_scale;
  float softmax_scale_log2;
};
constexpr u32 kArgumentBytes = 48;

constexpr i32 kWarps = 4, kThreads = kWarps * kWarpSize, kRowsPerTile = kWarps;

// Whose rows a tile works on. Here every sequence of the batch has the lengths of the problem, and a batch entry of its
// own in each tensor.
struct Sequence {
  i32 batch;

  Sequence() = default;
  __device__ __forceinline__ Sequence(const Arguments&, i32 batch) : batch(batch) {}

  // The elements between the first one of a tensor and the first one of the sequence, for tensors of queries and of
  // keys.
  __device__ __forceinline__ i64 query_offset(i64 stride_batch, i64 /*stride_row*/) const {
    return batch * stride_batch;
  }
  __device__ __forceinline__ i64 key_offset(i64 stride_batch, i64 /*stride_row*/) const { return batch * stride_batch; }
  // Those before its plane of a tensor of pairs.
  __device__ __forceinline__ i64 pair_offset(i64 stride_batch) const { return batch * stride_batch; }
};
__device__ __forceinline__ i32 query_count(const Arguments& args, const Sequence&) { return args.seq_q; }
__device__ __forceinline__ i32 key_count(const Arguments& args, const Sequence&) { return args.seq_kv; }
// Every query of a sequence attends to every key.
__device__ __forceinline__ i32 last_key(const Arguments& args, const Sequence& sequence, i32 /*query*/) {
  return key_count(args, sequence) - 1;
}

// The CTA's tile of queries. Tiles of a head are neighbours in the grid, then come the heads, then the batch.
struct QueryTile {
  Sequence sequence;
  i32 head, head_kv, batch_head;
  i32 first_row, rows;  // rows that exist

  __device__ __forceinline__ explicit QueryTile(const Arguments& args) {
    const u32 tile = block_index() % static_cast<u32>(args.query_tiles);
    batch_head = static_cast<i32>(block_index() / static_cast<u32>(args.query_tiles));
    sequence = Sequence(args, batch_head / args.heads_q);
    head = batch_head - sequence.batch * args.heads_q;
    head_kv = head / args.group_size;
    first_row = static_cast<i32>(tile) * kRowsPerTile;
    rows = query_count(args, sequence) - first_row < kRowsPerTile ? query_count(args, sequence) - first_row
        : kRowsPerTile;
  }
};
// S and P have a row of fp32 for each query of each head, of which only the keys that the query attends to are ever
// touched. Rows start at multiples of 16 bytes.
__device__ __forceinline__ float* score_row(const Arguments& args, const QueryTile& tile, i32 row) {
  const i64 pitch = (static_cast<i64>(args.seq_kv) + 3) & ~static_cast<i64>(3);
  return args.scores + (static_cast<i64>(tile.batch_head) * args.seq_q + tile.first_row + row) * pitch;
}
// Keys [0, attended_keys) are attended to; a row that pads the tile attends to none.
__device__ __forceinline__ i32 attended_keys(const Arguments& args, const QueryTile& tile, i32 row) {
  return row < tile.rows ? last_key(args, tile.sequence, tile.first_row + row) + 1 : 0;
}
// Over the lanes of a warp, for all of them.
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

struct RowStatistics {
  float largest, sum;  // m and l
};

// exp(scale·(x - m))
__device__ __forceinline__ float exponential(float x, float m, float scale_log2) {
  return ex2_approx_ftz_f32((x - m) * scale_log2);
}

// One pass over the row: when the maximum grows from m to m', the sum so far is brought to it by the factor exp(m -
// m'). Each lane does so for its keys; in the end all are brought to the largest maximum.
__device__ __forceinline__ RowStatistics row_statistics(const float* s, i32 keys, float scale_log2) {
  float largest = negative_infinity(), sum = 0;
#pragma unroll 4
  for (i32 key = lane_index(); key < keys; key += kWarpSize) {
    const float score = ld_weak_global_f32(s + key), grown = max_f32(largest, score);
    sum = fma_rn_f32(sum, exponential(largest, grown, scale_log2), exponential(score, grown, scale_log2));
    largest = grown;
  }
  const float of_row = warp_max(largest);
  // A lane without a key has the sum 0 and the maximum -inf: where no lane has a key, their difference would be no
  // number.
  return {of_row, warp_sum(sum == 0 ? 0 : sum * exponential(largest, of_row, scale_log2))};
}

extern "C" __global__ void __launch_bounds__(kThreads) attune_ladder_softmax(const __grid_constant__ Arguments args) {
  const QueryTile tile(args);
  const i32 row = warp_index();
  if (row >= tile.rows) return;
  float* s = score_row(args, tile, row);
  const i32 keys = attended_keys(args, tile, row);
  const RowStatistics statistics = row_statistics(s, keys, args.softmax_scale_log2);

  const float inverse = rcp_approx_ftz_f32(statistics.sum);
#pragma unroll 4
  for (i32 key = lane_index(); key < keys; key += kWarpSize)
    st_global_f32(s + key,
        inverse * exponential(ld_weak_global_f32(s + key), statistics.largest, args.softmax_scale_log2));

  if (args.lse == nullptr || lane_index() != 0) return;
  constexpr float kLn2 = 0.693147180559945309f;
  const float lse = fma_rn_f32(statistics.largest, args.softmax_scale, lg2_approx_ftz_f32(statistics.sum) * kLn2);
  st_global_f32(args.lse + static_cast<i64>(tile.batch_head) * args.seq_q + tile.first_row + row,
      keys > 0 ? lse : negative_infinity());
}
static_assert(sizeof(Arguments) == kArgumentBytes, "the host packs the arguments as this compiler lays them out");

}  // namespace attune_54e6bf52a88838ea
