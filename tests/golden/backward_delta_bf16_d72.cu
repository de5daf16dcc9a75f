// attune backward bf16 d72 sm80 q64 kv64 w4 st2 · source 6e747c7517dd677b
//
// Of each query, what its keys' gradients have in common:
//
//   delta = rowsum(dO ∘ O) - dLSE,   and LSE·log2(e)
//
// both 0 and +inf for a query that sees nothing and for rows that pad a block of queries: P and dS are 0 there. kRowLanes lanes share a row;
// sums are in fp32.
using i32 = int;
using u16 = unsigned short;
using u32 = unsigned int;
using i64 = long long;
using u64 = unsigned long long;

constexpr u32 kWarpSize = 32;
constexpr u32 kAllLanes = 0xffffffffu;

__device__ __forceinline__ float negative_infinity() { return __int_as_float(0xff800000); }
__device__ __forceinline__ u32 thread_index() { return threadIdx.x; }  // in the CTA
__device__ __forceinline__ u32 lane_index() { return threadIdx.x % kWarpSize; }
__device__ __forceinline__ u32 block_index() { return blockIdx.x; }    // of the CTA in the grid
// The same in all lanes of a warp, and known to the compiler as such.
__device__ __forceinline__ u32 warp_index() { return __shfl_sync(kAllLanes, threadIdx.x / kWarpSize, 0); }
struct alignas(16) Vec4 { u32 x, y, z, w; };  // 16 bytes: eight 16-bit elements

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
__device__ __forceinline__ void st_global_b16(void* to, u16 x) {
  asm volatile("st.global.b16 [%0], %1;" ::"l"(to), "h"(x) : "memory");
}
__device__ __forceinline__ void st_global_b32(void* to, u32 x) {
  asm volatile("st.global.b32 [%0], %1;" ::"l"(to), "r"(x) : "memory");
}
__device__ __forceinline__ void st_global_f32(void* to, float x) {
  asm volatile("st.global.f32 [%0], %1;" ::"l"(to), "f"(x) : "memory");
}
__device__ __forceinline__ void st_global_f64(void* to, double x) {
  asm volatile("st.global.f64 [%0], %1;" ::"l"(to), "d"(x) : "memory");
}
__device__ __forceinline__ void st_global_v4_b32(void* to, Vec4 x) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
}

__device__ __forceinline__ void st_shared_b32(u32 to, u32 x) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(x) : "memory");
}
__device__ __forceinline__ u32 ld_shared_b32(u32 from) {
  u32 r;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(r) : "r"(from) : "memory");
  return r;
}
__device__ __forceinline__ void st_shared_v4_b32(u32 to, Vec4 x) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
}
__device__ __forceinline__ Vec4 ld_shared_v4_b32(u32 from) {
  Vec4 r;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "r"(from) : "memory");
  return r;
}
__device__ __forceinline__ void st_shared_f64(u32 to, double x) {
  asm volatile("st.shared.f64 [%0], %1;" ::"r"(to), "d"(x) : "memory");
}
__device__ __forceinline__ double ld_shared_f64(u32 from) {
  double r;
  asm volatile("ld.shared.f64 %0, [%1];" : "=d"(r) : "r"(from) : "memory");
  return r;
}

// All threads of the CTA.
__device__ __forceinline__ void bar_sync() { asm volatile("bar.sync 0;" ::: "memory"); }
// All lanes of the warp; orders their accesses to shared memory.
__device__ __forceinline__ void bar_warp_sync() { __syncwarp(); }
__device__ __forceinline__ float fma_rn_f32(float a, float b, float c) { return __fmaf_rn(a, b, c); }
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
// Two floats rounded to 16 bits: `high` to the upper half (PTX's operand order).
__device__ __forceinline__ u32 cvt_rn_bf16x2_f32(float high, float low) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
__device__ __forceinline__ u32 cvt_rn_f16x2_f32(float high, float low) {
  u32 r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
__device__ __forceinline__ double cvt_f64_bf16(u16 x) { return static_cast<double>(__uint_as_float(static_cast<u32>(x) << 16)); }
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
// Copies 16 bytes from global to shared memory without registers; only the first `bytes` (0 or 16) are read, the rest is zero.
__device__ __forceinline__ void cp_async_cg_16(u32 to, const void* from, u32 bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void cp_async_commit_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most kPending of this thread's youngest groups are under way.
template <int kPending>
__device__ __forceinline__ void cp_async_wait_group() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// 8x8 matrices of 16-bit elements: lanes 8 i .. 8 i + 7 give the row addresses of matrix i; lane l receives of each matrix the elements
// (row l / 4, columns 2 (l % 4) and + 1), with trans those of the transposed matrix.
__device__ __forceinline__ void ldmatrix_x4(u32 (&r)[4], u32 row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(row) : "memory");
}
__device__ __forceinline__ void ldmatrix_x4_trans(u32 (&r)[4], u32 row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(row) : "memory");
}
__device__ __forceinline__ void ldmatrix_x2(u32 (&r)[2], u32 row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(row) : "memory");
}
__device__ __forceinline__ void ldmatrix_x2_trans(u32 (&r)[2], u32 row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(row) : "memory");
}

// d += a b for a 16 x k (row-major) and b k x 8 (column-major), fp32 accumulation. Lane l holds of d the rows l / 4 and l / 4 + 8,
// columns 2 (l % 4) and + 1; of a the same rows, of b the column l / 4.
__device__ __forceinline__ void mma_m16n8k16_f32_bf16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void mma_m16n8k16_f32_f16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void mma_m16n8k8_f32_bf16(float (&d)[4], const u32 (&a)[2], u32 b0) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(b0));
}
__device__ __forceinline__ void mma_m16n8k8_f32_f16(float (&d)[4], const u32 (&a)[2], u32 b0) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(b0));
}

// x of the lane whose index differs in the bits of kMask.
template <int kMask>
__device__ __forceinline__ float shfl_sync_bfly_f32(float x) {
  float r;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=f"(r) : "f"(x), "n"(kMask));
  return r;
}
template <int kMask>
__device__ __forceinline__ u32 shfl_sync_bfly_b32(u32 x) {
  u32 r;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=r"(r) : "r"(x), "n"(kMask));
  return r;
}
// Whether x holds in any lane of the warp.
__device__ __forceinline__ bool vote_sync_any(bool x) { return __any_sync(kAllLanes, x); }
// x, of which the compiler knows nothing: what is computed from it is computed here, not kept in registers since an earlier place.
__device__ __forceinline__ i32 anew_i32(i32 x) {
  asm volatile("" : "+r"(x));
  return x;
}

struct alignas(16) Vec4F32 { float x, y, z, w; };

__device__ __forceinline__ float ld_global_f32(const float* from) {
  float r;
  asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(r) : "l"(from));
  return r;
}
__device__ __forceinline__ Vec4F32 ld_global_v4_f32(const float* from) {
  Vec4F32 r;
  asm volatile("ld.global.nc.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(r.x), "=f"(r.y), "=f"(r.z), "=f"(r.w) : "l"(from));
  return r;
}
__device__ __forceinline__ Vec4F32 ld_shared_v4_f32(u32 from) {
  Vec4F32 r;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(r.x), "=f"(r.y), "=f"(r.z), "=f"(r.w) : "r"(from) : "memory");
  return r;
}
__device__ __forceinline__ Vec4 ld_global_v4_b32(const void* from) {
  Vec4 r;
  asm volatile("ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "l"(from));
  return r;
}
__device__ __forceinline__ double ld_global_f64(const void* from) {
  double r;
  asm volatile("ld.global.nc.f64 %0, [%1];" : "=d"(r) : "l"(from));
  return r;
}
__device__ __forceinline__ void st_global_b64(void* to, u64 x) {
  asm volatile("st.global.b64 [%0], %1;" ::"l"(to), "l"(x) : "memory");
}
__device__ __forceinline__ void st_shared_b64(u32 to, u64 x) {
  asm volatile("st.shared.b64 [%0], %1;" ::"r"(to), "l"(x) : "memory");
}
__device__ __forceinline__ u64 ld_shared_b64(u32 from) {
  u64 r;
  asm volatile("ld.shared.b64 %0, [%1];" : "=l"(r) : "r"(from) : "memory");
  return r;
}

// Rounded one by one: the compiler contracts none of these with another.
__device__ __forceinline__ double add_rn_f64(double a, double b) { return __dadd_rn(a, b); }
__device__ __forceinline__ double mul_rn_f64(double a, double b) { return __dmul_rn(a, b); }
__device__ __forceinline__ double div_rn_f64(double a, double b) { return __ddiv_rn(a, b); }
__device__ __forceinline__ double sqrt_rn_f64(double x) { return __dsqrt_rn(x); }
__device__ __forceinline__ u64 bits_of_f64(double x) { return static_cast<u64>(__double_as_longlong(x)); }
__device__ __forceinline__ double f64_of_bits(u64 x) { return __longlong_as_double(static_cast<i64>(x)); }

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

constexpr i32 kHeadDim = 72, kRows = 64, kThreads = 128, kRowLanes = 16;
constexpr i32 kChunks = kHeadDim / 8, kRowsAtOnce = kThreads / kRowLanes;
constexpr float kLog2E = 1.44269504088896340736f;
static_assert(kRows % kRowsAtOnce == 0 && kChunks <= kRowLanes);

// Eight elements of a row that starts at a multiple of 16 bytes.
__device__ __forceinline__ Vec4 read_chunk(const char* from) { return ld_global_v4_b32(from); }

__device__ __forceinline__ float low_element(u32 pair) { return static_cast<float>(cvt_f64_bf16(static_cast<u16>(pair))); }
__device__ __forceinline__ float high_element(u32 pair) { return static_cast<float>(cvt_f64_bf16(static_cast<u16>(pair >> 16))); }

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
  const i32 tiles = args.query_tiles, tile = static_cast<i32>(block_index()) % tiles, batch_head = static_cast<i32>(block_index()) / tiles;
  const i32 batch = batch_head / args.heads_q, head = batch_head - batch * args.heads_q;
  const char* o = static_cast<const char*>(args.o) + 2 * (batch * args.o_stride_batch + head * args.o_stride_head);
  const char* d_o = static_cast<const char*>(args.d_o) + 2 * (batch * args.d_o_stride_batch + head * args.d_o_stride_head);
  const i32 chunk = static_cast<i32>(thread_index()) % kRowLanes;
#pragma unroll
  for (i32 i = 0; i < kRows / kRowsAtOnce; ++i) {
    const i32 query = tile * kRows + i * kRowsAtOnce + static_cast<i32>(thread_index()) / kRowLanes;
    const bool exists = query < args.seq_q;
    float sum = 0;
    if (exists && chunk < kChunks)
      sum = dot_of_chunks(read_chunk(o + query * args.o_stride_row * 2 + 16 * chunk), read_chunk(d_o + query * args.d_o_stride_row * 2 + 16 * chunk));
    if (kRowLanes > 16) sum += shfl_sync_bfly_f32<16>(sum);
    if (kRowLanes > 8) sum += shfl_sync_bfly_f32<8>(sum);
    if (kRowLanes > 4) sum += shfl_sync_bfly_f32<4>(sum);
    if (kRowLanes > 2) sum += shfl_sync_bfly_f32<2>(sum);
    if (kRowLanes > 1) sum += shfl_sync_bfly_f32<1>(sum);
    if (chunk != 0) continue;
    const i64 row = static_cast<i64>(batch_head) * args.seq_q + query;
    const float lse = exists ? ld_global_f32(args.lse + row) : negative_infinity();
    const bool sees = lse != negative_infinity();
    const float d_lse = sees && args.d_lse != nullptr ? ld_global_f32(args.d_lse + row) : 0.0f;
    float* statistics = args.statistics + 2 * ((static_cast<i64>(batch_head) * tiles + tile) * kRows + query - tile * kRows);
    st_global_f32(statistics, sees ? lse * kLog2E : -negative_infinity());
    st_global_f32(statistics + 1, sees ? sum - d_lse : 0.0f);
  }
}
static_assert(sizeof(Arguments) == kArgumentBytes, "the host packs the arguments as this compiler lays them out");
