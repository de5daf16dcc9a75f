// attune backward bf16 d72 sm80 q64 kv64 w4 st2 · source 3f0a61accc8e9f39
//
// Computes for each query what all its keys need for their gradients:
//
//   delta = rowsum(dO ∘ O) - dLSE,   and LSE·log2(e)
//
// A query that sees no key, and a row that pads a block of queries, gets delta = 0 and LSE = +inf: its P and dS are 0.
// kRowLanes lanes share a row; sums are in fp32.

namespace attune_c044d7724420af93 {

// #region primitives: of PTX, the instructions that this kernel uses
using i32 = int;
using u16 = unsigned short;
using u32 = unsigned int;
using i64 = long long;

__device__ __forceinline__ float negative_infinity() { return __int_as_float(0xff800000); }
__device__ __forceinline__ u32 thread_index() { return threadIdx.x; }  // in the CTA
__device__ __forceinline__ u32 block_index() { return blockIdx.x; }    // of the CTA in the grid

struct alignas(16) Vec4 { u32 x, y, z, w; };  // 16 bytes: eight 16-bit elements

__device__ __forceinline__ void st_global_f32(void* to, float x) {
  asm volatile("st.global.f32 [%0], %1;" ::"l"(to), "f"(x) : "memory");
}

__device__ __forceinline__ float ld_global_f32(const float* from) {
  float r;
  asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(r) : "l"(from));
  return r;
}

__device__ __forceinline__ Vec4 ld_global_v4_b32(const void* from) {
  Vec4 r;
  asm volatile("ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "l"(from));
  return r;
}

__device__ __forceinline__ double cvt_f64_bf16(u16 x) {
  return static_cast<double>(__uint_as_float(static_cast<u32>(x) << 16));
}

// x of the lane whose index differs in the bits of kMask.
template <int kMask>
__device__ __forceinline__ float shfl_sync_bfly_f32(float x) {
  float r;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=f"(r) : "f"(x), "n"(kMask));
  return r;
}

__device__ __forceinline__ float fma_rn_f32(float a, float b, float c) { return __fmaf_rn(a, b, c); }

// NaN where one of the two is.
__device__ __forceinline__ float max_nan_f32(float a, float b) {
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
// #endregion

struct Arguments {
  void* o;
  const void* d_o;
  float* lse;
  const float* d_lse;
  float* statistics;
  i64 o_stride_batch;
  i64 o_stride_head;
  i64 o_stride_row;
  i64 d_o_stride_batch;
  i64 d_o_stride_head;
  i64 d_o_stride_row;
  i32 heads_q;
  i32 seq_q;
  i32 query_tiles;
};
constexpr u32 kArgumentBytes = 104;

constexpr i32 kHeadDimV = 72, kElementBytes = 2, kRows = 64, kThreads = 128, kRowLanes = 16;
constexpr i32 kChunks = kHeadDimV / 8, kRowsAtOnce = kThreads / kRowLanes;
constexpr float kLog2E = 1.44269504088896340736f, kLargestFloat = 0x1.fffffep127f;
static_assert(kRows % kRowsAtOnce == 0 && kChunks <= kRowLanes);

// Eight elements of a row that starts at a multiple of 16 bytes.
__device__ __forceinline__ Vec4 read_chunk(const char* from) { return ld_global_v4_b32(from); }

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

// The rows of a head in a tensor without columns, such as LSE, which is packed: (batch, heads, queries); and the place
// of a row there.
__device__ __forceinline__ i64 packed_query_row(const Arguments& args, const Sequence& sequence, i32 head, i64 row) {
  return (static_cast<i64>(sequence.batch) * args.heads_q + head) * args.seq_q + row;
}

__device__ __forceinline__ float low_element(u32 pair) {
  return static_cast<float>(cvt_f64_bf16(static_cast<u16>(pair)));
}
__device__ __forceinline__ float high_element(u32 pair) {
  return static_cast<float>(cvt_f64_bf16(static_cast<u16>(pair >> 16)));
}

__device__ __forceinline__ float dot_of_chunks(Vec4 a, Vec4 b) {
  const u32 a_pairs[4] = {a.x, a.y, a.z, a.w}, b_pairs[4] = {b.x, b.y, b.z, b.w};
  float sum = 0;
#pragma unroll
  for (i32 i = 0; i < 4; ++i) {
    sum = fma_rn_f32(low_element(a_pairs[i]), low_element(b_pairs[i]), sum);
    sum = fma_rn_f32(high_element(a_pairs[i]), high_element(b_pairs[i]), sum);
  }
  return sum;
}

extern "C" __global__ void __launch_bounds__(kThreads) attune_backward_delta(const __grid_constant__ Arguments args) {
  const i32 tiles = args.query_tiles, tile = static_cast<i32>(block_index()) % tiles,
      batch_head = static_cast<i32>(block_index()) / tiles;
  const Sequence sequence(args, batch_head / args.heads_q);
  const i32 head = batch_head - sequence.batch * args.heads_q;
  const char* o = static_cast<const char*>(args.o) +
      kElementBytes * (sequence.query_offset(args.o_stride_batch, args.o_stride_row) + head * args.o_stride_head);
  const char* d_o = static_cast<const char*>(args.d_o) +
      kElementBytes * (sequence.query_offset(args.d_o_stride_batch, args.d_o_stride_row) + head * args.d_o_stride_head);
  const i32 chunk = static_cast<i32>(thread_index()) % kRowLanes;
// Four rows of a thread are under way at once; of eight ptxas spills the pieces.
#pragma unroll 4
  for (i32 i = 0; i < kRows / kRowsAtOnce; ++i) {
    const i32 query = tile * kRows + i * kRowsAtOnce + static_cast<i32>(thread_index()) / kRowLanes;
    const bool exists = query < query_count(args, sequence);
    float sum = 0;
    if (exists && chunk < kChunks)
      sum = dot_of_chunks(read_chunk(o + query * args.o_stride_row * kElementBytes + 16 * chunk),
          read_chunk(d_o + query * args.d_o_stride_row * kElementBytes + 16 * chunk));
    if (kRowLanes > 16) sum += shfl_sync_bfly_f32<16>(sum);
    if (kRowLanes > 8) sum += shfl_sync_bfly_f32<8>(sum);
    if (kRowLanes > 4) sum += shfl_sync_bfly_f32<4>(sum);
    if (kRowLanes > 2) sum += shfl_sync_bfly_f32<2>(sum);
    if (kRowLanes > 1) sum += shfl_sync_bfly_f32<1>(sum);
    if (chunk != 0) continue;
    const i64 row = packed_query_row(args, sequence, head, query);
    const float lse = exists ? ld_global_f32(args.lse + row) : negative_infinity();
    const bool sees = lse != negative_infinity();
    // Finite below, lest a hidden score, which is -inf, met its negative.
    const float lse_log2 = sees ? max_nan_f32(lse * kLog2E, -kLargestFloat) : -negative_infinity();
    const float d_lse = sees && args.d_lse != nullptr ? ld_global_f32(args.d_lse + row) : 0.0f;
    float* statistics = args.statistics +
        2 * ((static_cast<i64>(batch_head) * tiles + tile) * kRows + query - tile * kRows);
    st_global_f32(statistics, lse_log2);
    st_global_f32(statistics + 1, sees ? sum - d_lse : 0.0f);
  }
}
static_assert(sizeof(Arguments) == kArgumentBytes, "the host packs the arguments as this compiler lays them out");

}  // namespace attune_c044d7724420af93
