// attune backward bf16 d128 sink sm90 q64 kv128 st3 overlap=within dq=atomic · source 603e0148fd57de26
//
// Computes the gradient of each query head's sink from LSE and what another kernel has left of each query:
//
//   dsink = -Σ exp(sink - LSE)·delta     over all queries of the head, in all batch entries
//
// A CTA has a head. The order of the sum is fixed: a thread adds every kThreads-th query, then the CTA what its threads
// have. A query that has no part in the sum, as it sees nothing, not even a sink, or is none, has delta = 0; its LSE
// may be anything.

namespace attune_160ae4fbf29717a9 {

// #region primitives: of PTX, the instructions that this kernel uses
using i32 = int;
using u32 = unsigned int;
using i64 = long long;

constexpr u32 kWarpSize = 32;
constexpr u32 kAllLanes = 0xffffffffu;

__device__ __forceinline__ u32 thread_index() { return threadIdx.x; }  // in the CTA
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
};
constexpr u32 kArgumentBytes = 48;

constexpr i32 kRows = 64, kThreads = 1024, kWarps = kThreads / kWarpSize;
constexpr i32 kAtOnce = 8;  // queries of a thread whose loads are under way together
constexpr u32 kFloat = sizeof(float);
constexpr float kLog2E = 1.44269504088896340736f;
static_assert(kWarps <= kWarpSize && kWarps * kFloat == 128);

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

// Rows that each batch entry has in the tensors of queries and of keys.
__device__ __forceinline__ i32 stored_queries(const Arguments& args) { return args.seq_q; }
__device__ __forceinline__ i32 stored_queries(const Arguments& args, const Sequence&) { return stored_queries(args); }
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
  // Queries of all batch entries, one after the other: as many loads as possible are under way together.
  const u32 stored = static_cast<u32>(stored_queries(args)), batch_step = kThreads / stored,
      query_step = kThreads % stored;
  u32 batch = thread_index() / stored, query = thread_index() % stored;
  float sum = 0;
  while (batch < static_cast<u32>(args.batch)) {
    float lse[kAtOnce], delta[kAtOnce];
#pragma unroll
    for (i32 i = 0; i < kAtOnce; ++i) {
      lse[i] = delta[i] = 0;
      if (batch < static_cast<u32>(args.batch)) {
        const i64 head_of_all = static_cast<i64>(batch) * args.heads_q + head;
        lse[i] = ld_global_f32(args.lse + head_of_all * stored + query);
        delta[i] = delta_of(args.statistics + 2 * kRows * (head_of_all * args.query_tiles + query / kRows),
            static_cast<i32>(query % kRows));
      }
      query += query_step;
      batch += batch_step;
      if (query >= stored) {
        query -= stored;
        ++batch;
      }
    }
#pragma unroll
    for (i32 i = 0; i < kAtOnce; ++i) sum = with_query(sum, sink, lse[i], delta[i]);
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

}  // namespace attune_160ae4fbf29717a9
