// attune forward bf16 d128 invariant group8 sm90 q64 kv128 st2 parts=fixed overlap=within pack-gqa · source 4bff377d2584d0fb
//
// Adds up what the args.key_parts parts of the keys gave each row of queries, one after the other: O_i and the sum l_i
// of the exponentials of the scores, both beside the maximum m_i of these.
//
//   m' = max(m, m_i)    O = O·exp2(c m - c m') + O_i·exp2(c m_i - c m')    l = l·exp2(c m - c m') + l_i·exp2(c m_i - c m'),   c = scale·log2(e)
//   O = O / l,   LSE = scale·m + ln l
//
// That is what a CTA does that goes through all parts itself, in the same order and with the same roundings: bits do
// not tell how parts were shared out. A part that holds no key of a row has l_i = 0, and its O_i is not read; a row
// without any key gets O = 0 and LSE = -inf. kRowLanes lanes share a row.

namespace attune_e40c03d52cde7465 {

// #region primitives: of PTX, the instructions that this kernel uses
using i32 = int;
using u32 = unsigned int;
using i64 = long long;

__device__ __forceinline__ float negative_infinity() { return __int_as_float(0xff800000); }
__device__ __forceinline__ u32 thread_index() { return threadIdx.x; }  // in the CTA
__device__ __forceinline__ u32 block_index() { return blockIdx.x; }    // of the CTA in the grid

struct alignas(16) Vec4 { u32 x, y, z, w; };  // 16 bytes: eight 16-bit elements

__device__ __forceinline__ void st_global_f32(void* to, float x) {
  asm volatile("st.global.f32 [%0], %1;" ::"l"(to), "f"(x) : "memory");
}
__device__ __forceinline__ void st_global_v4_b32(void* to, Vec4 x) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
}

struct alignas(8) Vec2F32 { float x, y; };

// Memory that the kernel itself writes: no .nc, whose cache may hold what was there before.
__device__ __forceinline__ Vec2F32 ld_weak_global_v2_f32(const float* from) {
  Vec2F32 r;
  asm volatile("ld.weak.global.v2.f32 {%0, %1}, [%2];" : "=f"(r.x), "=f"(r.y) : "l"(from) : "memory");
  return r;
}

struct alignas(16) Vec4F32 { float x, y, z, w; };

// Memory that this kernel itself writes.
__device__ __forceinline__ Vec4F32 ld_weak_global_v4_f32(const float* from) {
  Vec4F32 r;
  asm volatile("ld.weak.global.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(r.x), "=f"(r.y), "=f"(r.z), "=f"(r.w) : "l"(from)
      : "memory");
  return r;
}

// Two floats rounded to 16 bits: `high` to the upper half (PTX's operand order).
__device__ __forceinline__ u32 cvt_rn_bf16x2_f32(float high, float low) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

// Copies 16 bytes from global to shared memory without registers; only the first `bytes` (0 or 16) are read, the rest
// is zero.
__device__ __forceinline__ void cp_async_cg_16(u32 to, const void* from, u32 bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
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

// Programmatic dependent launch, compute capability 9.0 and newer: the launch that follows in the stream may begin, if
// it was made so, when each CTA has said the first or has ended; behind the second it sees all that this one wrote.
__device__ __forceinline__ void griddepcontrol_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
// #endregion

struct Arguments {
  float* o_partial;
  float* statistics_partial;
  void* o;
  float* lse;
  i64 o_stride_batch;
  i64 o_stride_head;
  i64 o_stride_row;
  i32 batch;
  i32 heads_q;
  i32 seq_q;
  float softmax_scale;
  float softmax_scale_log2;
  i32 key_parts;
};
constexpr u32 kArgumentBytes = 80;

constexpr i32 kHeadDimV = 128, kElementBytes = 2, kRows = 2, kThreads = 32, kRowLanes = 16;
constexpr i32 kChunks = kHeadDimV / 8;
constexpr i32 kAtOnce = 4;  // parts whose loads are under way together
constexpr bool kLastFirst = true;  // the order of the parts
constexpr float kLn2 = 0.693147180559945309f;
static_assert(kRows * kRowLanes == kThreads && kChunks <= kRowLanes);

// Rows start at multiples of 16 bytes: a chunk is copied without registers and arrives with its cp.async group.
__device__ __forceinline__ void load_chunk(u32 to, const char* from, bool exists) {
  cp_async_cg_16(to, from, exists ? 16 : 0);
}
__device__ __forceinline__ void store_chunk(char* to, Vec4 chunk) { st_global_v4_b32(to, chunk); }
// Two elements of the problem's type in a register.
__device__ __forceinline__ u32 pack_elements(float low, float high) { return cvt_rn_bf16x2_f32(high, low); }

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

// The rows of a head in a tensor without columns, such as LSE, which is packed: (batch, heads, queries); and the place
// of a row there.
__device__ __forceinline__ i32 packed_query_rows(const Arguments& args) { return args.seq_q; }

// A chunk of columns of a row: what one part gives it, or several.
struct Sums {
  float row_max = negative_infinity(), row_sum = 0;
  float o[8] = {};

  // They may still be written when this launch begins: no .nc here.
  __device__ __forceinline__ void load(const float* statistics, const float* columns, bool has_columns) {
    const Vec2F32 both = ld_weak_global_v2_f32(statistics);
    row_max = both.x;
    row_sum = both.y;
    if (row_sum == 0 || !has_columns) return;
    const Vec4F32 low = ld_weak_global_v4_f32(columns), high = ld_weak_global_v4_f32(columns + 4);
    o[0] = low.x, o[1] = low.y, o[2] = low.z, o[3] = low.w, o[4] = high.x, o[5] = high.y, o[6] = high.z, o[7] = high.w;
  }
  __device__ __forceinline__ void add(const Sums& part, float scale_log2) {
    const float m = max_f32(row_max, part.row_max), finite = m == negative_infinity() ? 0 : m;
    const float earlier = ex2_approx_ftz_f32((row_max - finite) * scale_log2),
        now = ex2_approx_ftz_f32((part.row_max - finite) * scale_log2);
    row_sum = fma_rn_f32(part.row_sum, now, row_sum * earlier);
    row_max = m;
#pragma unroll
    for (i32 e = 0; e < 8; ++e) o[e] = fma_rn_f32(part.o[e], now, o[e] * earlier);
  }
};

extern "C" __global__ void __launch_bounds__(kThreads)
    attune_forward_add_parts(const __grid_constant__ Arguments args) {
  const i32 heads = args.batch * args.heads_q, thread = static_cast<i32>(thread_index()), chunk = thread % kRowLanes;
  const i64 rows = static_cast<i64>(heads) * packed_query_rows(args),
      row = static_cast<i64>(block_index()) * kRows + thread / kRowLanes;
  griddepcontrol_wait();
  if (row >= rows) return;
  const bool has_columns = chunk < kChunks;
  const float* const statistics = args.statistics_partial + 2 * row;
  const float* const columns = args.o_partial + row * kHeadDimV + 8 * chunk;

  Sums sums;
  for (i32 first = 0; first < args.key_parts; first += kAtOnce) {
    Sums some[kAtOnce];
#pragma unroll
    for (i32 i = 0; i < kAtOnce; ++i) {
      const i32 number = first + i;
      if (number >= args.key_parts) continue;
      const i64 part = kLastFirst ? args.key_parts - 1 - number : number;
      some[i].load(statistics + 2 * part * rows, columns + part * rows * kHeadDimV, has_columns);
    }
#pragma unroll
    for (i32 i = 0; i < kAtOnce; ++i)
      if (some[i].row_sum != 0) sums.add(some[i], args.softmax_scale_log2);
  }

  const float inverse = sums.row_sum != 0 ? rcp_approx_ftz_f32(sums.row_sum) : 0;  // a NaN stays one
  if (args.lse != nullptr && chunk == 0)
    st_global_f32(args.lse + row,
        sums.row_sum != 0 ? fma_rn_f32(sums.row_max, args.softmax_scale, lg2_approx_ftz_f32(sums.row_sum) * kLn2)
        : negative_infinity());
  if (!has_columns) return;
  const i32 batch_head = static_cast<i32>(row / packed_query_rows(args));
  const Sequence sequence(args, batch_head / args.heads_q);
  const i32 head = batch_head - sequence.batch * args.heads_q;
  const i64 query = row - static_cast<i64>(batch_head) * packed_query_rows(args);
  char* const to = static_cast<char*>(args.o) +
                   kElementBytes *
                       (sequence.query_offset(args.o_stride_batch, args.o_stride_row) + head * args.o_stride_head +
                       query * args.o_stride_row);
  u32 words[4];
#pragma unroll
  for (i32 i = 0; i < 4; ++i) words[i] = pack_elements(sums.o[2 * i] * inverse, sums.o[2 * i + 1] * inverse);
  store_chunk(to + 16 * chunk, Vec4{words[0], words[1], words[2], words[3]});
}
static_assert(sizeof(Arguments) == kArgumentBytes, "the host packs the arguments as this compiler lays them out");

}  // namespace attune_e40c03d52cde7465
