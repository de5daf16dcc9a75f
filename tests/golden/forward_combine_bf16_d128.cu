// attune forward bf16 d128 group8 sm90 q64 kv128 st2 rescale10 parts=fill overlap=within pack-gqa · source 8da653b3e29803c9
//
// Combines what args.key_parts parts of the keys gave each row of queries, O_i, the maximum m_i of the scores and the
// sum l_i of their exponentials:
//
//   m = max m_i    w_i = l_i exp2(c (m_i - m))    O = Σ (w_i / Σ w) O_i    LSE = scale·m + ln Σ w,   c = scale·log2(e)
//
// A part that holds no key of a row has l_i = 0, and its O_i is not read; a row without any key gets O = 0 and LSE =
// -inf. The order of the sums is fixed. kWarpsOfRow warps have a row: kRowLanes lanes share its columns, a chunk of
// eight each, and the kSlices groups of lanes share the parts. What counts for few rows is the number of trips to
// memory, one after the other: one for m_i and l_i, and one for so many parts of O as are under way together.

namespace attune_3566fda6837b7040 {

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

struct alignas(16) Vec4 { u32 x, y, z, w; };  // 16 bytes: eight 16-bit elements

// Address of the CTA's dynamic shared memory in the shared window; all shared addresses are such 32-bit numbers.
__device__ __forceinline__ u32 shared_base() {
  extern __shared__ __align__(1024) unsigned char dynamic_shared[];
  return static_cast<u32>(__cvta_generic_to_shared(dynamic_shared));
}

__device__ __forceinline__ void st_global_f32(void* to, float x) {
  asm volatile("st.global.f32 [%0], %1;" ::"l"(to), "f"(x) : "memory");
}
__device__ __forceinline__ void st_global_v4_b32(void* to, Vec4 x) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
}

__device__ __forceinline__ void st_shared_v4_b32(u32 to, Vec4 x) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
}

struct alignas(8) Vec2F32 { float x, y; };

// Memory that the kernel itself writes: no .nc, whose cache may hold what was there before.
__device__ __forceinline__ Vec2F32 ld_weak_global_v2_f32(const float* from) {
  Vec2F32 r;
  asm volatile("ld.weak.global.v2.f32 {%0, %1}, [%2];" : "=f"(r.x), "=f"(r.y) : "l"(from) : "memory");
  return r;
}

struct alignas(16) Vec4F32 { float x, y, z, w; };

__device__ __forceinline__ Vec4F32 ld_shared_v4_f32(u32 from) {
  Vec4F32 r;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(r.x), "=f"(r.y), "=f"(r.z), "=f"(r.w) : "r"(from)
      : "memory");
  return r;
}

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

__device__ __forceinline__ u32 f32_to_bits(float x) { return __float_as_uint(x); }

// All threads of the CTA.
__device__ __forceinline__ void bar_sync() { asm volatile("bar.sync 0;" ::: "memory"); }

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

constexpr i32 kHeadDimV = 128, kElementBytes = 2, kRows = 1, kThreads = 128, kRowLanes = 16, kWarpsOfRow = 4;
constexpr i32 kChunks = kHeadDimV / 8, kSlicesOfWarp = kWarpSize / kRowLanes, kSlices = kWarpsOfRow * kSlicesOfWarp;
constexpr i32 kAtOnce = 4;  // parts of a slice whose loads are under way together
constexpr float kLn2 = 0.693147180559945309f;
constexpr float kHeadroom = 10;  // powers of two by which sums are smaller than their maxima say
static_assert(kThreads == kRows * kWarpsOfRow * kWarpSize && kChunks <= kRowLanes &&
    kSlicesOfWarp * kRowLanes == kWarpSize);
static_assert(kWarpsOfRow == 1 || kRows == 1);   // the warps of a CTA meet once

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

// Adds what the lanes hold whose index differs in this bit, unless the bit tells columns apart.
template <i32 kMask>
__device__ __forceinline__ void add_slices(float (&sums)[8]) {
  if (kMask < kRowLanes) return;
#pragma unroll
  for (i32 e = 0; e < 8; ++e) sums[e] += shfl_sync_bfly_f32<kMask>(sums[e]);
}

// The maximum of all lanes.
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

// What a part of the keys, or several, know of a row's scores.
struct RowStatistics {
  float row_max, row_sum;  // -inf and 0 without a key

  __device__ __forceinline__ RowStatistics() : row_max(negative_infinity()), row_sum(0) {}
  // They may still be written when this launch begins: no .nc here.
  __device__ __forceinline__ explicit RowStatistics(const float* from) {
    const Vec2F32 both = ld_weak_global_v2_f32(from);
    row_max = both.x;
    row_sum = both.y;
  }
  // The sum as it is beside a maximum of `to`, which is no smaller, and a number.
  __device__ __forceinline__ float sum_beside(float to, float scale_log2) const {
    return row_sum * ex2_approx_ftz_f32((row_max - to) * scale_log2);
  }
};

// A number in place of the maximum of no keys.
__device__ __forceinline__ float finite(float row_max) { return row_max == negative_infinity() ? 0 : row_max; }

// Parts of a row, of which a slice has every kSlices-th.
struct Parts {
  RowStatistics statistics[kAtOnce];
  Vec4F32 low[kAtOnce], high[kAtOnce];

  __device__ __forceinline__ void load_statistics(const float* of_row, i64 rows, i32 first, i32 parts) {
#pragma unroll
    for (i32 i = 0; i < kAtOnce; ++i) {
      const i32 part = first + i * kSlices;
      statistics[i] = part < parts ? RowStatistics(of_row + 2 * part * rows) : RowStatistics();
    }
  }
  __device__ __forceinline__ void load_o(const float* o_of_row, i64 rows, i32 first, bool has_columns) {
#pragma unroll
    for (i32 i = 0; i < kAtOnce; ++i) {
      low[i] = high[i] = Vec4F32{};
      if (statistics[i].row_sum == 0 || !has_columns) continue;
      const float* const o = o_of_row + (first + i * kSlices) * rows * kHeadDimV;
      low[i] = ld_weak_global_v4_f32(o);
      high[i] = ld_weak_global_v4_f32(o + 4);
    }
  }
  __device__ __forceinline__ void add_to(float (&sums)[8], float row_max, float scale_log2, float inverse) const {
#pragma unroll
    for (i32 i = 0; i < kAtOnce; ++i) {
      const float weight = statistics[i].sum_beside(row_max, scale_log2) * inverse;
      const float o[8] = {low[i].x, low[i].y, low[i].z, low[i].w, high[i].x, high[i].y, high[i].z, high[i].w};
#pragma unroll
      for (i32 e = 0; e < 8; ++e) sums[e] = fma_rn_f32(weight, o[e], sums[e]);
    }
  }
};

extern "C" __global__ void __launch_bounds__(kThreads) attune_forward_combine(const __grid_constant__ Arguments args) {
  const i32 heads = args.batch * args.heads_q, parts = args.key_parts, warp = static_cast<i32>(warp_index());
  const i64 rows = static_cast<i64>(heads) * packed_query_rows(args),
      row = static_cast<i64>(block_index()) * kRows + warp / kWarpsOfRow;
  if (row >= rows) return;
  const i32 lane = static_cast<i32>(lane_index()), chunk = lane % kRowLanes;
  const i32 slice = warp % kWarpsOfRow * kSlicesOfWarp + lane / kRowLanes;
  griddepcontrol_wait();
  const float* const statistics_of_row = args.statistics_partial + 2 * row;
  const float c = args.softmax_scale_log2;
  const float* const o_of_row = args.o_partial + row * kHeadDimV + 8 * chunk;

  i32 first = slice;
  Parts some;
  some.load_statistics(statistics_of_row, rows, first, parts);
  // Every warp finds the maximum of all parts, and the sum beside it.
  RowStatistics all;
  for (i32 part = lane; part < parts; part += 2 * kWarpSize) {
    const RowStatistics x(statistics_of_row + 2 * part * rows);
    const RowStatistics y = part + kWarpSize < parts ? RowStatistics(statistics_of_row + 2 * (part + kWarpSize) * rows)
        : RowStatistics();
    const float higher = max_f32(all.row_max, max_f32(x.row_max, y.row_max));  // of numbers: a NaN is in its sum, too
    const float to = finite(higher);
    all.row_sum = all.sum_beside(to, c) + x.sum_beside(to, c) + y.sum_beside(to, c);
    all.row_max = higher;
  }
  some.load_o(o_of_row, rows, first, chunk < kChunks);
  const float m = finite(warp_max(all.row_max)), weights = warp_sum(all.sum_beside(m, c));
  const float inverse = weights != 0 ? rcp_approx_ftz_f32(weights) : 0;  // a NaN stays one

  // Weights that add up to 1: sums of the largest numbers do not overflow.
  float sums[8] = {};
  while (true) {
    some.add_to(sums, m, c, inverse);
    first += kAtOnce * kSlices;
    if (first >= parts) break;
    some.load_statistics(statistics_of_row, rows, first, parts);
    some.load_o(o_of_row, rows, first, chunk < kChunks);
  }
  add_slices<16>(sums);
  add_slices<8>(sums);
  add_slices<4>(sums);
  add_slices<2>(sums);
  add_slices<1>(sums);

  const bool has_chunk = lane < kRowLanes && chunk < kChunks;  // of what the slices of a warp have added up
  if (kWarpsOfRow > 1) {
    constexpr u32 kChunkBytes = 8 * sizeof(float);
    const u32 mine = shared_base() + static_cast<u32>(chunk) * kChunkBytes;
    const u32 of_warp = kChunks * kChunkBytes;
    if (warp > 0 && has_chunk) {
      const u32 to = mine + static_cast<u32>(warp - 1) * of_warp;
      st_shared_v4_b32(to,
          Vec4{f32_to_bits(sums[0]), f32_to_bits(sums[1]), f32_to_bits(sums[2]), f32_to_bits(sums[3])});
      st_shared_v4_b32(to + 16,
          Vec4{f32_to_bits(sums[4]), f32_to_bits(sums[5]), f32_to_bits(sums[6]), f32_to_bits(sums[7])});
    }
    bar_sync();
    if (warp > 0) return;
#pragma unroll
    for (i32 other = 0; other < kWarpsOfRow - 1; ++other) {
      if (!has_chunk) break;
      const u32 from = mine + static_cast<u32>(other) * of_warp;
      const Vec4F32 low = ld_shared_v4_f32(from), high = ld_shared_v4_f32(from + 16);
      const float added[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
      for (i32 e = 0; e < 8; ++e) sums[e] += added[e];
    }
  }

  if (args.lse != nullptr && lane == 0)
    st_global_f32(args.lse + row,
        weights != 0 ? fma_rn_f32(m, args.softmax_scale, (lg2_approx_ftz_f32(weights) + kHeadroom) * kLn2)
        : negative_infinity());
  if (!has_chunk) return;
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
  for (i32 i = 0; i < 4; ++i) words[i] = pack_elements(sums[2 * i], sums[2 * i + 1]);
  store_chunk(to + 16 * chunk, Vec4{words[0], words[1], words[2], words[3]});
}
static_assert(sizeof(Arguments) == kArgumentBytes, "the host packs the arguments as this compiler lays them out");

}  // namespace attune_3566fda6837b7040
