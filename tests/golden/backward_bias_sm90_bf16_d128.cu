// attune backward bf16 d128 causal alibi bias=bhqk bias-gradient attention-mask=bhqk sm90 q64 kv128 st2 ordered overlap=within dq=atomic · source 6db85b39912d7d97
//
// The gradient of a bias, on Hopper (wgmma, TMA, mbarriers):
//
//   dbias = Σ P ∘ (dP - delta)     over the batch entries, heads and queries along which the bias repeats
//
//   P = exp2(c S + log2(e)·(-slope·|key - diagonal| + bias - LSE)), masked,   S = Q Kᵀ,   dP = dO Vᵀ,   c = scale·log2(e); the diagonal of the last query ends at the last key; 0 where the attention mask is false
//
// A CTA has a tile of kBlockQ queries and kBlockKv keys of one plane of the bias; where that repeats along the queries,
// kBlockKv keys of all of them. It walks over the tiles of S that share these elements, in a fixed order, and sums in
// registers; then it takes another one. Warpgroup 0 loads: one thread panels of the operands, into a ring of slots,
// another one the tile of the bias, once, and those of the attention mask. Each of the others owns 64 queries: their S,
// dP and sums.
//
// shared memory, bytes; a slot holds kPanelColumns columns of a tile of Q and K, or of dO and V:
//        0  bias  [1][2][128][64]
//    32768  attention mask  [1][1][128][128]
//    49152  Q and K, or dO and V  [5][2][128][64]
//   212992  barriers
//   213104  end

namespace attune_ae60f89d3b202ccd {

// #region primitives: of PTX, the instructions that this kernel uses
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

__device__ __forceinline__ u32 grid_size() { return gridDim.x; }

// x, hidden from the compiler: what is derived from it is computed anew instead of being kept in registers.
__device__ __forceinline__ i32 opaque_i32(i32 x) {
  asm volatile("" : "+r"(x));
  return x;
}

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
__device__ __forceinline__ u32 ld_global_u8(const void* from) {
  u32 r;
  asm volatile("ld.global.nc.u8 %0, [%1];" : "=r"(r) : "l"(from));
  return r;
}
__device__ __forceinline__ void st_global_b16(void* to, u16 x) {
  asm volatile("st.global.b16 [%0], %1;" ::"l"(to), "h"(x) : "memory");
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

// Two floats rounded to 16 bits: `high` to the upper half (PTX's operand order).
__device__ __forceinline__ u32 cvt_rn_bf16x2_f32(float high, float low) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

// Two elements of 16 bits as floats.
__device__ __forceinline__ float cvt_f32_low_bf16(u32 pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float cvt_f32_high_bf16(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }

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

__device__ __forceinline__ float fma_rn_f32(float a, float b, float c) { return __fmaf_rn(a, b, c); }
// Clamped to [0, 1]; NaN becomes 0.
__device__ __forceinline__ float abs_f32(float x) { return fabsf(x); }

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

// All lanes of the warp; orders their accesses to shared memory.
__device__ __forceinline__ void bar_warp_sync() { __syncwarp(); }

// Whether x holds in any lane of the warp.
__device__ __forceinline__ bool vote_sync_any(bool x) { return __any_sync(kAllLanes, x); }

// Named barriers of the CTA, 1 to 15 (0 is bar_sync's): `threads` of it arrive, those that sync also wait.
__device__ __forceinline__ void bar_sync_named(u32 name, u32 threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(name), "r"(threads) : "memory");
}

// This thread's ordinary accesses to shared memory before it come before accesses by wgmma and TMA that are ordered
// after it.
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// mbarriers: 64-bit objects in shared memory that complete a phase when `arrivals` threads have arrived and all
// expected bytes have landed.
__device__ __forceinline__ void mbarrier_init(u32 barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to the cluster and to TMA.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void mbarrier_arrive_expect_tx(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// Whether the phase of this parity has completed; waits a while for it.
__device__ __forceinline__ bool mbarrier_try_wait_parity(u32 barrier, u32 parity) {
  u32 done;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.b32 %0, 1, 0, p;\n"
      "}" : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
  return done != 0;
}

__device__ __forceinline__ void mbarrier_wait_parity(u32 barrier, u32 parity) {
  while (!mbarrier_try_wait_parity(barrier, parity)) {
  }
}

// What the tensor memory accelerator knows about a tensor: made by the host, passed by value in the kernel's arguments.
struct alignas(64) TensorMap { u64 words[16]; };

// Copies a box of a tensor (dim, head, row, batch) to shared memory; elements outside of the tensor are zeros. Its
// bytes, those of the whole box, complete on `barrier`. The addresses of map and barrier are read later: both stay.
__device__ __forceinline__ void cp_async_bulk_tensor_4d_load(u32 to, const TensorMap& map, u32 barrier, i32 dim,
    i32 head, i32 row, i32 batch) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];"
               ::"r"(to), "l"(&map), "r"(barrier), "r"(dim), "r"(head), "r"(row), "r"(batch) : "memory");
}

__device__ __forceinline__ void prefetch_tensormap(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// 8x8 matrices of 16-bit elements: lanes 8 i .. 8 i + 7 give the row addresses of matrix i; lane l receives of each
// matrix the elements (row l / 4, columns 2 (l % 4) and + 1), with trans those of the transposed matrix.
__device__ __forceinline__ void ldmatrix_x4(u32 (&r)[4], u32 row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(row) : "memory");
}

// Registers of each thread of the warpgroup from here on. The launch must have taken as many for all of them together.
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// wgmma: products of a warpgroup. It runs beside the threads that issue it: registers of d and a, and the shared memory
// that descriptors name, are its own from the issue until a wait_group that covers it.

// Orders accesses to registers before it with products after it.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void wgmma_commit_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most kPending of the youngest groups are under way.
template <int kPending>
__device__ __forceinline__ void wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// After a wait_group: the compiler sees no link between it and the registers that it completes; this is the link.
template <i32 kRegisters>
__device__ __forceinline__ void wgmma_landed(float (&d)[kRegisters]) {
#pragma unroll
  for (i32 i = 0; i < kRegisters; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// d = a b, or d += a b with kAccumulate: m64nNk16, N twice the registers of d. Warp w of the warpgroup holds of d the
// rows 16 w to 16 w + 15 as fragments of m16n8: d[4 n + i] is row lane / 4 + 8 (i / 2), column 8 n + 2 (lane % 4) + i %
// 2. b is K-major, or MN-major (kTransposed).
template <bool kAccumulate, bool kTransposed>
__device__ __forceinline__ void wgmma_ss(float (&d)[64], u64 a_descriptor, u64 b_descriptor) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, p, 1, 1, 0, %67;\n"
      "}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
        "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
      : "l"(a_descriptor), "l"(b_descriptor), "n"(kAccumulate ? 1 : 0), "n"(kTransposed ? 1 : 0));
}

// The first product of a sum, d = a b: d is an output alone, so that the compiler keeps nothing that it held before.
template <bool kTransposed>
__device__ __forceinline__ void wgmma_ss_first(float (&d)[64], u64 a_descriptor, u64 b_descriptor) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, 0, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, p, 1, 1, 0, %66;\n"
      "}"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3]), "=f"(d[4]), "=f"(d[5]), "=f"(d[6]), "=f"(d[7]),
        "=f"(d[8]), "=f"(d[9]), "=f"(d[10]), "=f"(d[11]), "=f"(d[12]), "=f"(d[13]), "=f"(d[14]), "=f"(d[15]),
        "=f"(d[16]), "=f"(d[17]), "=f"(d[18]), "=f"(d[19]), "=f"(d[20]), "=f"(d[21]), "=f"(d[22]), "=f"(d[23]),
        "=f"(d[24]), "=f"(d[25]), "=f"(d[26]), "=f"(d[27]), "=f"(d[28]), "=f"(d[29]), "=f"(d[30]), "=f"(d[31]),
        "=f"(d[32]), "=f"(d[33]), "=f"(d[34]), "=f"(d[35]), "=f"(d[36]), "=f"(d[37]), "=f"(d[38]), "=f"(d[39]),
        "=f"(d[40]), "=f"(d[41]), "=f"(d[42]), "=f"(d[43]), "=f"(d[44]), "=f"(d[45]), "=f"(d[46]), "=f"(d[47]),
        "=f"(d[48]), "=f"(d[49]), "=f"(d[50]), "=f"(d[51]), "=f"(d[52]), "=f"(d[53]), "=f"(d[54]), "=f"(d[55]),
        "=f"(d[56]), "=f"(d[57]), "=f"(d[58]), "=f"(d[59]), "=f"(d[60]), "=f"(d[61]), "=f"(d[62]), "=f"(d[63])
      : "l"(a_descriptor), "l"(b_descriptor), "n"(kTransposed ? 1 : 0));
}
// #endregion

struct Arguments {
  TensorMap q_map;
  TensorMap k_map;
  TensorMap v_map;
  TensorMap d_o_map;
  float* statistics;
  void* d_bias;
  i64 d_bias_stride_batch;
  i64 d_bias_stride_head;
  i64 d_bias_stride_row;
  i32 batch;
  i32 heads_q;
  i32 group_size;
  i32 seq_q;
  i32 seq_kv;
  i32 key_tiles;
  i32 tiles;
  i32 bias_batch;
  i32 bias_heads;
  i32 bias_rows;
  i32 mask_offset;
  float softmax_scale_log2;
  const float* alibi_slopes;
  i64 alibi_slopes_stride_batch;
  i64 alibi_slopes_stride_head;
  const void* bias;
  i64 bias_stride_batch;
  i64 bias_stride_head;
  i64 bias_stride_row;
  const void* attention_mask;
  i64 attention_mask_stride_batch;
  i64 attention_mask_stride_head;
  i64 attention_mask_stride_row;
  TensorMap bias_map;
  i32 bias_by_map;
  TensorMap attention_mask_map;
  i32 attention_mask_by_map;
};
constexpr u32 kArgumentBytes = 1088;

constexpr i32 kHeadDimQk = 128, kHeadDimV = 128;  // elements of a row of Q and K, and of V and O
constexpr i32 kElementBytes = 2, kBiasBytes = 2;
constexpr i32 kBlockQ = 128, kBlockKv = 128, kConsumers = 2, kSlots = 5;
constexpr i32 kRows = 64;  // queries whose statistics lie together
constexpr i32 kProducerRegisters = 24, kConsumerRegisters = 240;

constexpr i32 kWarpgroup = 128, kWarpgroupWarps = 4, kWarpgroupRows = 64;  // threads, warps, rows of a wgmma
constexpr i32 kThreads = (kConsumers + 1) * kWarpgroup;
constexpr i32 kPanelColumns = 64, kPanels = 2;
constexpr u32 kPanelBytes = kElementBytes * kPanelColumns;  // of a row
constexpr u32 kQueryPanelBytes = kBlockQ * kPanelBytes, kKeyPanelBytes = kBlockKv * kPanelBytes,
    kSlotBytes = kQueryPanelBytes + kKeyPanelBytes;
constexpr u32 kBiasOffset = 0;
constexpr u32 kAttentionMaskOffset = 32768;
constexpr u32 kSlotOffset = 49152;
constexpr u32 kBarrierOffset = 212992;
// k16 steps of a product over the head dim; columns beyond it are zeros
constexpr i32 kDimSteps = (kHeadDimQk + 15) / 16;
constexpr i32 kPanelSteps = kPanelColumns / 16;         // of a panel
constexpr i32 kPanelsUnderWay = kPanels < 2 ? 1 : 2;    // of a product, at most
constexpr i32 kKeySteps = kBlockKv / 16;                // sixteens of keys
static_assert(kBlockQ == kWarpgroupRows * kConsumers && kHeadDimQk % 8 == 0 && kHeadDimQk == kHeadDimV);
static_assert(kSlots >= 2 * kPanelsUnderWay);

// A thread's accumulators: element 4 n + i lies in row lane / 4 + 8 (i / 2) of its warp's 16 rows, in column 8 n + 2
// (lane % 4) + i % 2.
using ScoreFragments = float[kBlockKv / 2];

// Operands of wgmma in shared memory: tiles of kPanels panels, each of kPanelColumns columns (a row has kPanelBytes,
// the span of the swizzle) and all rows of the tile. A place counts in units of 16 bytes and is the lower half of a
// descriptor; the upper half is the same for all.
constexpr u32 kGroupBytes = 8 * kPanelBytes;  // of eight rows, the period of the swizzle

__device__ __forceinline__ u32 tile_place(u32 address, u32 panel_stride) {
  return (address & 0x3ffff) >> 4 | panel_stride >> 4 << 16;
}
__device__ __forceinline__ u64 matrix_descriptor(u32 place) {
  constexpr u64 kUpperHalf = static_cast<u64>(kGroupBytes >> 4) << 32 | static_cast<u64>(1) << 62;
  return kUpperHalf | place;
}
// How far step k of 16 columns lies from the first one, for a tile whose panels are panel_stride bytes apart.
__device__ __forceinline__ u32 column_step(i32 k, u32 panel_stride) {
  constexpr i32 kStepsOfPanel = kPanelColumns / 16;
  return (k / kStepsOfPanel * panel_stride + k % kStepsOfPanel * 32) >> 4;
}
// The same for 16 rows.
__device__ __forceinline__ u32 row_step(i32 k) { return (k * 2 * kGroupBytes) >> 4; }
// Where TMA and wgmma have the byte of a panel that begins at a multiple of its period: 16-byte chunks are xored with
// bits of the row.
__device__ __forceinline__ u32 swizzled(u32 address) { return address ^ (address >> 3 & (kPanelBytes - 16) & 0x70); }

// A place in a ring of kCount buffers that producer and consumers walk in step, and the parity of its round: a buffer
// is full when the phase of that parity of its full barrier has completed, and free for the round when that of the
// other parity of its empty barrier has.
template <i32 kCount>
struct PipelineSlot {
  i32 stage = 0;
  u32 parity = 0;

  __device__ __forceinline__ void advance() {
    if (++stage == kCount) {
      stage = 0;
      parity ^= 1;
    }
  }
};

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

// Rows that each batch entry has in the tensors of queries and of keys.
__device__ __forceinline__ i32 stored_queries(const Arguments& args) { return args.seq_q; }
__device__ __forceinline__ i32 stored_queries(const Arguments& args, const Sequence&) { return stored_queries(args); }
// Those of a batch entry that may count.
__device__ __forceinline__ i32 queries_of_batch(const Arguments& args, i32 /*batch*/) { return args.seq_q; }

// Workspaces hold whole blocks of rows: so many of each head, one batch entry after the other; a sequence's begin with
// those of its head.
__device__ __forceinline__ i32 workspace_batch(const Sequence& sequence) { return sequence.batch; }
template <i32 kRows>
__device__ __forceinline__ i32 blocks_of_queries(const Arguments& args) {
  return (args.seq_q + kRows - 1) / kRows;
}
template <i32 kRows>
__device__ __forceinline__ i32 first_block_of_queries(const Sequence&) {
  return 0;
}

// The diagonals of the mask.
__device__ __forceinline__ i64 last_offset(const Arguments& args, const Sequence&) { return args.mask_offset; }
// A query attends to the keys with key <= query + last_offset. Neither the first nor the last key of a query falls from
// one query to the next. A query that attends to no key has its first key behind its last one.
__device__ __forceinline__ i32 last_key(const Arguments& args, const Sequence& sequence, i32 query) {
  const i64 diagonal = query + last_offset(args, sequence);  // may leave 32 bits
  const i64 last = key_count(args, sequence) - 1;
  return static_cast<i32>(diagonal < -1 ? -1 : diagonal < last ? diagonal : last);
}
__device__ __forceinline__ i32 first_query(const Arguments& args, const Sequence& sequence, i32 key) {
  const i64 first = key - last_offset(args, sequence);
  return static_cast<i32>(first < 0 ? 0 : first < query_count(args, sequence) ? first : query_count(args, sequence));
}

// The keys that a query does not attend to, by their distance from a key.
struct HiddenKeys {
  i32 last;  // that is attended to

  __device__ __forceinline__ HiddenKeys(const Arguments& args, const Sequence& sequence, i32 query, i32 from)
      : last(last_key(args, sequence, query) - from) {}
  __device__ __forceinline__ void move(i32 keys) { last -= keys; }
  __device__ __forceinline__ bool has(i32 distance) const { return distance > last; }
};

// The blocks of keys [begin, end) that some of the queries from top_query to bottom_query attend to. All of these
// queries attend to all keys of the blocks [unmasked_begin, unmasked_end).
struct KeyBlocks {
  static constexpr i32 begin = 0, unmasked_begin = 0;  // what a query attends to begins with the first key
  i32 unmasked_end, end;

  KeyBlocks() = default;
  __device__ __forceinline__ KeyBlocks(const Arguments& args, const Sequence& sequence, i32 top_query,
      i32 bottom_query) {
    unmasked_end = unmasked_end_of(args, sequence, top_query, bottom_query);
    end = end_of(args, sequence, top_query, bottom_query);
  }

  __device__ __forceinline__ static i32 unmasked_end_of(const Arguments& args, const Sequence& sequence, i32 top_query,
      i32 /*bottom_query*/) {
    return (last_key(args, sequence, top_query) + 1) / kBlockKv;
  }
  __device__ __forceinline__ static i32 end_of(const Arguments& args, const Sequence& sequence, i32 /*top_query*/,
      i32 bottom_query) {
    return (last_key(args, sequence, bottom_query) + kBlockKv) / kBlockKv;
  }
};

// A tile of one plane of the bias, for a CTA: kBlockQ queries and kBlockKv keys; of a bias that repeats along the
// queries all of these. Those of a plane follow each other, so that those in flight share operands in L2.
struct BiasTile {
  i32 row_tile, key_tile, plane;

  __device__ __forceinline__ BiasTile(const Arguments& args, u32 number) {
    const u32 key_tiles = static_cast<u32>(args.key_tiles),
        row_tiles = static_cast<u32>((args.bias_rows + kBlockQ - 1) / kBlockQ);
    key_tile = static_cast<i32>(number % key_tiles);
    row_tile = static_cast<i32>(number / key_tiles % row_tiles);
    plane = static_cast<i32>(number / key_tiles / row_tiles);
  }
  // Those of the bias; 0 along which it repeats.
  __device__ __forceinline__ i32 batch(const Arguments& args) const {
    return args.bias_batch == 1 ? 0 : plane / args.bias_heads;
  }
  __device__ __forceinline__ i32 head(const Arguments& args) const {
    return args.bias_heads == 1 ? 0 : plane % args.bias_heads;
  }
};

// The tiles of S that share one of the bias, one after the other: of one batch entry or of all, of one head or of all,
// of one row of tiles or of all.
struct ScoreTiles {
  i32 batch, head, row_tile, key_tile;  // of the one that is worked on

  __device__ __forceinline__ ScoreTiles(const Arguments& args, const BiasTile& tile)
      : batch(tile.batch(args)), head(tile.head(args)), row_tile(tile.row_tile), key_tile(tile.key_tile) {}
  // Goes on to one in which some query sees some key, from this one on; false if there is none.
  __device__ __forceinline__ bool find(const Arguments& args) {
    while (batch < args.batch) {
      if (has_pairs(args)) return true;
      advance(args);
    }
    return false;
  }
  __device__ __forceinline__ bool next(const Arguments& args) {
    advance(args);
    return differ(args) ? find(args) : batch < args.batch;
  }
  // Whether one of these tiles may see other pairs than the next one.
  __device__ __forceinline__ static bool differ(const Arguments& args) { return args.bias_rows == 1; }

 private:
  __device__ __forceinline__ void advance(const Arguments& args) {
    if (args.bias_rows == 1) {
      if (++row_tile < (queries_of_batch(args, batch) + kBlockQ - 1) / kBlockQ) return;
      row_tile = 0;
    }
    if (args.bias_heads == 1) {
      if (++head < args.heads_q) return;
      head = 0;
    }
    batch = args.bias_batch == 1 ? batch + 1 : args.batch;
  }
  __device__ __forceinline__ bool has_pairs(const Arguments& args) const {
    const Sequence sequence(args, batch);
    const i32 first = row_tile * kBlockQ, queries = query_count(args, sequence);
    if (first >= queries) return false;
    const KeyBlocks blocks(args, sequence, first, (queries - first > kBlockQ ? first + kBlockQ : queries) - 1);
    return blocks.begin <= key_tile && key_tile < blocks.end;
  }
};

// Changes the scores q·k of a block before they are masked, and takes a gradient back through that change. Here scores
// stay as they are.
struct ScoreFunction {
  ScoreFunction() = default;
  __device__ __forceinline__ explicit ScoreFunction(const Arguments&) {}
  __device__ __forceinline__ void modify(ScoreFragments& /*scores*/) {}
  // P times the derivative of the change.
  __device__ __forceinline__ float slope(float p, float /*score*/) const { return p; }
};
// ALiBi: a score loses its head's slope times the keys between it and the query's diagonal, which ends at the last key
// of the sequence. In powers of two.
__device__ __forceinline__ float alibi_slope(const Arguments& args, const Sequence& sequence, i32 head) {
  return 1.44269504088896340736f *
      ld_global_f32(args.alibi_slopes + sequence.batch * args.alibi_slopes_stride_batch +
      head * args.alibi_slopes_stride_head);
}
// The key of a query's diagonal, which may lie beside all keys of the sequence.
__device__ __forceinline__ i32 alibi_diagonal(const Arguments& args, const Sequence& sequence, i32 query) {
  return query + (key_count(args, sequence) - query_count(args, sequence));
}
// Tensors with an element for each pair of a query and a key of a head. A dimension along which one repeats has a
// stride of 0. Elements of keys lie one after the other. What is read belongs to the sequence, whatever the
// coordinates: those of no query or no key are the last ones'. Kernels hide such pairs, or multiply their P by rows of
// zeros, which takes a number.
__device__ __forceinline__ i32 last_of(i32 count) { return count > 0 ? count - 1 : 0; }
__device__ __forceinline__ i32 clamped(i32 x, i32 count) { return x < count ? x : last_of(count); }
__device__ __forceinline__ const char* bias_of_query(const Arguments& args, const Sequence& sequence, i32 head,
    i32 query) {
  const i64 offset = sequence.pair_offset(args.bias_stride_batch) + head * args.bias_stride_head;
  return static_cast<const char*>(args.bias) +
      2 * (offset + clamped(query, query_count(args, sequence)) * args.bias_stride_row);
}
// In natural units; -inf hides the key.
__device__ __forceinline__ const char* attention_mask_of_query(const Arguments& args, const Sequence& sequence,
    i32 head, i32 query) {
  const i64 offset = sequence.pair_offset(args.attention_mask_stride_batch) + head * args.attention_mask_stride_head;
  return static_cast<const char*>(args.attention_mask) +
      (offset + clamped(query, query_count(args, sequence)) * args.attention_mask_stride_row);
}
__device__ __forceinline__ bool attends(const char* of_query, i32 key) { return ld_global_u8(of_query + key) != 0; }

// The coordinates of rows in tensor maps. The rows of a sequence follow each other in memory.
struct MapPlace {
  i32 row, batch;
};
__device__ __forceinline__ MapPlace place_of_queries(const Arguments&, const Sequence& sequence, i32 row) {
  return {row, sequence.batch};
}
__device__ __forceinline__ MapPlace place_of_keys(const Arguments&, const Sequence& sequence, i32 block) {
  return {block * kBlockKv, sequence.batch};
}

// Copies a box of a tile: the columns of a panel.
__device__ __forceinline__ void load_box(u32 to, const TensorMap& map, u32 full, i32 column, i32 head, MapPlace place) {
  cp_async_bulk_tensor_4d_load(to, map, full, column, head, place.row, place.batch);
}
// Delta of query r of a block of kRows: deltas are behind all LSE, those of sixteen queries as lanes of fragments hold
// columns.
__device__ __forceinline__ float delta_of(const float* statistics_of_block, i32 r) {
  return ld_weak_global_f32(statistics_of_block + kRows + r / 16 * 16 + r % 8 / 2 * 4 + r % 16 / 8 * 2 + r % 2);
}
// LSE·log2(e) of query r of a block of kRows, whose place is that of its delta before all deltas.
__device__ __forceinline__ float lse_log2_of(const float* statistics_of_block, i32 r) {
  return ld_weak_global_f32(statistics_of_block + r / 16 * 16 + r % 8 / 2 * 4 + r % 16 / 8 * 2 + r % 2);
}
// LSE and delta of the block of kRows queries that a query lies in, as backward_delta leaves them.
__device__ __forceinline__ const float* statistics_of_query(const Arguments& args, const Sequence& sequence, i32 head,
    i32 query) {
  const i64 blocks = blocks_of_queries<kRows>(args),
      block_of_head = (static_cast<i64>(workspace_batch(sequence)) * args.heads_q + head) * blocks;
  return args.statistics + 2 * kRows * (block_of_head + first_block_of_queries<kRows>(sequence) + query / kRows);
}

// Tiles of what tensors of pairs hold for the queries and the keys of a block: panels as those of Q are. TMA copies
// them where a tensor map describes the tensor. Where one then repeats along the queries, the rows of a tile are its
// first one, and where it repeats along the heads, those of its first head. Other tensors have rows that start
// anywhere: each warp loads what it needs into its own part of the tile.
template <i32 kBytes, i32 kColumns, i32 kCount>
struct PairPanels {
  static constexpr i32 kElement = kBytes;
  static constexpr u32 kRowBytes = kBytes * kColumns, kStride = kBlockQ * kRowBytes, kTileBytes = kCount * kStride;
  static_assert(kCount * kColumns >= kBlockKv && (kRowBytes == 128 || kRowBytes == 64 || kRowBytes == 32));

  // Byte b of a row lies at at(row(...), b): TMA xors chunks of 16 bytes with bits of the row.
  __device__ __forceinline__ static u32 row(u32 tile, i32 row) {
    const u32 address = tile + row * kRowBytes;
    return address ^ (address >> 3 & (kRowBytes - 16) & 0x70);
  }
  __device__ __forceinline__ static u32 at(u32 row, u32 byte) {
    return (row ^ byte % kRowBytes) + byte / kRowBytes * kStride;
  }

  // The tile completes on `full`.
  __device__ __forceinline__ static void copy(u32 tile, const TensorMap& map, u32 full, i32 first_key, i32 head,
      i32 row, i32 batch) {
#pragma unroll
    for (i32 panel = 0; panel < kCount; ++panel)
      cp_async_bulk_tensor_4d_load(tile + panel * kStride, map, full, first_key + panel * kColumns, head, row, batch);
  }

  // A warp loads kRows rows from `first_row` of the tile on, of each kKeys keys from the tile's key `key` on. of_row:
  // where a row lies in global memory, from its first key on; first_key: of the tile; last: the last key that there is,
  // which stands for those behind it.
  template <i32 kRows, i32 kKeys, class OfRow>
  __device__ __forceinline__ static void load(u32 tile, i32 first_row, i32 key, i32 first_key, i32 last, OfRow of_row) {
    constexpr i32 kPerWord = 4 / kBytes, kWords = kKeys / kPerWord;
    constexpr i32 kAhead = kRows * kWords % 128 == 0 ? 4 : 2;  // words that a lane loads before it stores them
    static_assert(kRows * kWords % (32 * kAhead) == 0);
    bar_warp_sync();  // the warp has read what lay there
#pragma unroll 1
    for (i32 begin = static_cast<i32>(lane_index()); begin < kRows * kWords; begin += 32 * kAhead) {
      u32 words[kAhead];
#pragma unroll
      for (i32 i = 0; i < kAhead; ++i)
        words[i] = word_of(of_row((begin + 32 * i) / kWords), first_key + key + (begin + 32 * i) % kWords * kPerWord,
            last);
#pragma unroll
      for (i32 i = 0; i < kAhead; ++i)
        st_shared_b32(at(row(tile, first_row + (begin + 32 * i) / kWords),
            kBytes * key + (begin + 32 * i) % kWords * 4), words[i]);
    }
    bar_warp_sync();
  }

 private:
  __device__ __forceinline__ static u32 word_of(const char* row, i32 key, i32 last) {
    u32 word = 0;
#pragma unroll
    for (i32 i = 0; i < 4 / kBytes; ++i) {
      const char* from = row + kBytes * static_cast<i64>(key + i < last ? key + i : last);
      if (kBytes == 4) return f32_to_bits(ld_global_f32(reinterpret_cast<const float*>(from)));
      word |= (kBytes == 2 ? ld_global_b16(from) : ld_global_u8(from)) << 8 * kBytes * i;
    }
    return word;
  }
};

using BiasPanels = PairPanels<2, 64, 2>;
static_assert(kBarrierOffset >= kBiasOffset + 1 * BiasPanels::kTileBytes);
__device__ __forceinline__ u32 bias_tile(u32 shared, i32 stage) {
  return shared + kBiasOffset + stage * BiasPanels::kTileBytes;
}
__device__ __forceinline__ void copy_bias(const Arguments& args, u32 tile, u32 full, i32 batch, i32 head, i32 query,
    i32 first_key) {
  BiasPanels::copy(tile, args.bias_map, full, first_key, args.bias_stride_head == 0 ? 0 : head,
    args.bias_stride_row == 0 ? 0 : query, args.bias_stride_batch == 0 ? 0 : batch);
}
// The row of a tile that holds what another one needs.
__device__ __forceinline__ i32 row_of_bias(const Arguments& args, i32 row) {
  return args.bias_by_map && args.bias_stride_row == 0 ? 0 : row;
}

using AttentionMaskPanels = PairPanels<1, 128, 1>;
static_assert(kBarrierOffset >= kAttentionMaskOffset + 1 * AttentionMaskPanels::kTileBytes);
__device__ __forceinline__ u32 attention_mask_tile(u32 shared, i32 stage) {
  return shared + kAttentionMaskOffset + stage * AttentionMaskPanels::kTileBytes;
}
__device__ __forceinline__ void copy_attention_mask(const Arguments& args, u32 tile, u32 full, i32 batch, i32 head,
    i32 query, i32 first_key) {
  AttentionMaskPanels::copy(tile, args.attention_mask_map, full, first_key,
      args.attention_mask_stride_head == 0 ? 0 : head, args.attention_mask_stride_row == 0 ? 0 : query,
      args.attention_mask_stride_batch == 0 ? 0 : batch);
}
// The row of a tile that holds what another one needs.
__device__ __forceinline__ i32 row_of_attention_mask(const Arguments& args, i32 row) {
  return args.attention_mask_by_map && args.attention_mask_stride_row == 0 ? 0 : row;
}

// What the tensors of pairs hold for a thread's scores of sixteen keys, step after step. Element i is that of its score
// 8·step + i.
struct PairElements {
  u32 bias_row;      // where the row lies that this lane gives to four matrices of eight rows and eight keys
  u32 bias_pairs[4];
  u32 attention_mask_rows[2];  // where the word with the first of its elements lies, of both of its rows
  u32 attention_mask_pairs[4];

  PairElements() = default;
  // index: of the warpgroup among the consumers.
  __device__ __forceinline__ PairElements(const Arguments& args, u32 shared, i32 stage, i32 index) {
    const i32 lane = static_cast<i32>(lane_index()), first = 64 * index + static_cast<i32>(warp_index() % 4) * 16;
    bias_row = BiasPanels::row(bias_tile(shared, stage), row_of_bias(args, first + lane % 16)) ^ lane / 16 * 16;
#pragma unroll
    for (i32 half = 0; half < 2; ++half) {
      const i32 row = first + lane / 4 + 8 * half;
      attention_mask_rows[half] = AttentionMaskPanels::row(attention_mask_tile(shared, stage),
          row_of_attention_mask(args, row)) ^ lane % 4 / 2 * 4;
    }
  }
  __device__ __forceinline__ void read(i32 step) {
    ldmatrix_x4(bias_pairs, BiasPanels::at(bias_row, 32 * step));
#pragma unroll
    for (i32 i = 0; i < 4; ++i) {
      attention_mask_pairs[i] =
          ld_shared_b32(AttentionMaskPanels::at(attention_mask_rows[i % 2],
          16 * step + i / 2 * 8)) >> lane_index() % 2 * 16;
    }
  }
  __device__ __forceinline__ float bias(i32 i) const {
    return i % 2 ? cvt_f32_high_bf16(bias_pairs[pair_of(i)]) : cvt_f32_low_bf16(bias_pairs[pair_of(i)]);
  }
  __device__ __forceinline__ bool attends(i32 i) const {
    return (attention_mask_pairs[pair_of(i)] >> i % 2 * 8 & 0xff) != 0;
  }

 private:
  __device__ __forceinline__ static i32 pair_of(i32 i) { return i / 2 % 2 + i / 4 * 2; }
};
// Word j of lane i of a quad goes to word i of lane j.
__device__ __forceinline__ void transpose_in_quad(u32 (&words)[4]) {
  const bool odd = lane_index() & 1, high = lane_index() & 2;
  const u32 a = shfl_sync_bfly_b32<1>(odd ? words[0] : words[1]), b = shfl_sync_bfly_b32<1>(odd ? words[2] : words[3]);
  if (odd) {
    words[0] = a;
    words[2] = b;
  } else {
    words[1] = a;
    words[3] = b;
  }
  const u32 c = shfl_sync_bfly_b32<2>(high ? words[0] : words[2]),
      d = shfl_sync_bfly_b32<2>(high ? words[1] : words[3]);
  if (high) {
    words[0] = c;
    words[1] = d;
  } else {
    words[2] = c;
    words[3] = d;
  }
}
// Two elements of the problem's type in a register.
__device__ __forceinline__ u32 pack_elements(float low, float high) { return cvt_rn_bf16x2_f32(high, low); }

constexpr u32 kSumsBarrier = 1;  // the named barrier of all consumers

// The barriers. A full one completes when TMA has filled its buffer, an empty one when every consumer warp has left it.
struct Barriers {
  u32 base;
  static constexpr u32 kOfSlot = 16, kOfSlots = kOfSlot * kSlots;  // bytes
  static_assert(kOfSlots + 32 == 112);
  __device__ __forceinline__ u32 slot_full(i32 slot) const { return base + kOfSlot * slot; }
  __device__ __forceinline__ u32 slot_empty(i32 slot) const { return base + kOfSlot * slot + 8; }
  __device__ __forceinline__ u32 bias_full() const { return base + kOfSlots; }
  __device__ __forceinline__ u32 bias_empty() const { return base + kOfSlots + 8; }
  __device__ __forceinline__ u32 mask_full() const { return base + kOfSlots + 16; }
  __device__ __forceinline__ u32 mask_empty() const { return base + kOfSlots + 24; }

  __device__ __forceinline__ void init() const {
    constexpr u32 kConsumerWarps = kWarpgroupWarps * kConsumers;
    for (i32 i = 0; i < kSlots; ++i) {
      mbarrier_init(slot_full(i), 1);
      mbarrier_init(slot_empty(i), kConsumerWarps);
    }
    mbarrier_init(bias_full(), 1);
    mbarrier_init(bias_empty(), kConsumerWarps);
    mbarrier_init(mask_full(), 1);
    mbarrier_init(mask_empty(), kConsumerWarps);
    fence_mbarrier_init();
  }
};

// Tiles of the bias are dealt out to CTAs one after the other.
__device__ __forceinline__ u32 first_number() { return block_index(); }
__device__ __forceinline__ u32 next_number(u32 number) { return number + grid_size(); }
__device__ __forceinline__ bool is_number(const Arguments& args, u32 number) {
  return number < static_cast<u32>(args.tiles);
}

// Copies panels of Q and K, and of dO and V, in the order in which the consumers want them.
struct OperandLoads {
  Barriers barriers;
  u32 shared;
  PipelineSlot<kSlots> slot;

  // The panels of both products: one loop, as two would take more registers than this warpgroup keeps.
  __device__ __forceinline__ void load(const Arguments& args, i32 head, i32 head_kv, MapPlace queries, MapPlace keys) {
#pragma unroll 1
    for (i32 i = 0; i < 2 * kPanels; ++i) {
      const bool of_dp = i >= kPanels;
      const i32 panel = of_dp ? i - kPanels : i;
      const TensorMap &of_queries = of_dp ? args.d_o_map : args.q_map, &of_keys = of_dp ? args.v_map : args.k_map;
      const u32 full = barriers.slot_full(slot.stage), to = shared + kSlotOffset + slot.stage * kSlotBytes;
      mbarrier_wait_parity(barriers.slot_empty(slot.stage), slot.parity ^ 1);
      mbarrier_arrive_expect_tx(full, kSlotBytes);
      load_box(to, of_queries, full, panel * kPanelColumns, head, queries);
      load_box(to + kQueryPanelBytes, of_keys, full, panel * kPanelColumns, head_kv, keys);
      slot.advance();
    }
  }
};

// For one thread.
__device__ __forceinline__ void load_operands(const Arguments& args, const Barriers& barriers, u32 shared) {
  OperandLoads loads{barriers, shared};
  for (u32 number = first_number(); is_number(args, number); number = next_number(number)) {
    ScoreTiles at(args, BiasTile(args, number));
    for (bool any = at.find(args); any; any = at.next(args)) {
      const Sequence sequence(args, at.batch);
      loads.load(args, at.head, at.head / args.group_size, place_of_queries(args, sequence, at.row_tile * kBlockQ),
                 place_of_keys(args, sequence, at.key_tile));
    }
  }
}

// For one thread. Where no tensor map describes a tensor, the consumers load it themselves once its buffer is theirs.
__device__ __forceinline__ void load_pair_tiles(const Arguments& args, const Barriers& barriers, u32 shared) {
  u32 bias_parity = 0;
  u32 mask_parity = 0;
  for (u32 number = first_number(); is_number(args, number); number = next_number(number)) {
    ScoreTiles at(args, BiasTile(args, number));
    if (!at.find(args)) continue;
    const i32 first_key = at.key_tile * kBlockKv;
    mbarrier_wait_parity(barriers.bias_empty(), bias_parity ^ 1);
    mbarrier_arrive_expect_tx(barriers.bias_full(), args.bias_by_map ? BiasPanels::kTileBytes : 0);
    if (args.bias_by_map)
      copy_bias(args, bias_tile(shared, 0), barriers.bias_full(), at.batch, at.head, at.row_tile * kBlockQ, first_key);
    bias_parity ^= 1;
    do {
      mbarrier_wait_parity(barriers.mask_empty(), mask_parity ^ 1);
      mbarrier_arrive_expect_tx(barriers.mask_full(), args.attention_mask_by_map ? AttentionMaskPanels::kTileBytes : 0);
      if (args.attention_mask_by_map)
        copy_attention_mask(args, attention_mask_tile(shared, 0), barriers.mask_full(), at.batch, at.head,
            at.row_tile * kBlockQ, first_key);
      mask_parity ^= 1;
    } while (at.next(args));
  }
}

// What a row of a tile of S needs beside its scores. A query that sees no key, or does not exist, has an LSE of +inf:
// its P is 0.
struct QueryRow {
  float lse_log2, delta;
  float slope, from_diagonal;  // from_diagonal: the distance of the thread's first key from the diagonal of the query

  // statistics: of the block of kRows queries that this one lies in.
  __device__ __forceinline__ QueryRow(const Arguments& args, const Sequence& sequence, const float* statistics,
      i32 query) : lse_log2(-negative_infinity()), delta(0) {
    if (query >= stored_queries(args, sequence)) return;
    lse_log2 = lse_log2_of(statistics, query % kRows);
    delta = delta_of(statistics, query % kRows);
  }
  __device__ __forceinline__ void set_alibi(const Arguments& args, const Sequence& sequence, i32 head, i32 query,
      i32 first_key) {
    slope = alibi_slope(args, sequence, head);
    from_diagonal = static_cast<float>(first_key - alibi_diagonal(args, sequence, query));
  }
  // What P's exponent has beside the score.
  __device__ __forceinline__ float exponent(float bias, i32 distance) const {
    constexpr float kLog2E = 1.44269504088896340736f;
    return fma_rn_f32(kLog2E, bias,
        fma_rn_f32(-slope, abs_f32(from_diagonal + static_cast<float>(distance)), -lse_log2));
  }
};

// Whether some pair of a tile of S is hidden, or a query of it does not exist.
__device__ __forceinline__ bool hides_pairs(const Arguments& args, const ScoreTiles& at) {
  const Sequence sequence(args, at.batch);
  const i32 first = at.row_tile * kBlockQ, end = first + kBlockQ;
  if (end > query_count(args, sequence)) return true;
  const KeyBlocks blocks(args, sequence, first, end - 1);
  const i32 key_tile = at.key_tile;
  return key_tile < blocks.unmasked_begin || key_tile >= blocks.unmasked_end;
}

// The tiles of S that a warpgroup adds. A vote has one result for all lanes, as ptxas cannot know of a length that was
// loaded: the loop would count as divergent.
struct SharingTiles {
  ScoreTiles at;
  bool any, hides;  // whether there is one, and whether some pair of it is hidden

  __device__ __forceinline__ SharingTiles(const Arguments& args, const BiasTile& tile) : at(args, tile) {
    any = vote_sync_any(at.find(args));
    hides = vote_sync_any(any && hides_pairs(args, at));
  }
  __device__ __forceinline__ void next(const Arguments& args) {
    any = vote_sync_any(at.next(args));
    if (ScoreTiles::differ(args)) hides = vote_sync_any(any && hides_pairs(args, at));
  }
};

// Where a warpgroup stands in the rings, and its products.
struct Consumer {
  const Arguments& args;
  Barriers barriers;
  u32 shared;
  i32 index;                            // of the warpgroup among the consumers
  PipelineSlot<kSlots> slot;            // the next one to multiply
  u32 bias_parity = 0;
  bool has_bias = false;                // of the tile
  u32 mask_parity = 0;

  __device__ __forceinline__ i32 first_row_of_warp() const {
    return index * kWarpgroupRows + static_cast<i32>(warp_index() % kWarpgroupWarps) * 16;
  }

  // Adds P ∘ (dP - delta) of a tile of S. What it needs beside its products is looked up while these run, and so is
  // the next tile; before them where a mask is loaded or packed sequences are found, for which they leave no registers.
  template <bool kMasked>
  __device__ __forceinline__ void add_tile(SharingTiles& tiles, ScoreFragments& sums) {
    ScoreFragments s, dp;
    const ScoreTiles& at = tiles.at;
    const Sequence sequence(args, at.batch);
    const i32 query = at.row_tile * kBlockQ + first_row_of_warp() + static_cast<i32>(lane_index() / 4);
    const i32 first_key = at.key_tile * kBlockKv + static_cast<i32>(lane_index() % 4 * 2);
    static_assert(kRows % 16 == 0);  // the rows of a warp lie in one block
    const float* const statistics = statistics_of_query(args, sequence, at.head, query);
    QueryRow rows[2] = {QueryRow(args, sequence, statistics, query), QueryRow(args, sequence, statistics, query + 8)};
    rows[0].set_alibi(args, sequence, at.head, query, first_key);
    rows[1].set_alibi(args, sequence, at.head, query + 8, first_key);
    load_pairs(at, sequence);
    tiles.next(args);
    multiply<0>(s);                // S = Q Kᵀ
    multiply<kPanelsUnderWay>(dp);  // dP = dO Vᵀ
    wgmma_wait_group<kPanelsUnderWay>();
    wgmma_landed(s);
    if (kPanels <= kPanelsUnderWay) release<2 * kPanelsUnderWay, kPanelsUnderWay>();
    ScoreFunction(args).modify(s);
    wait_bias();
    wait_mask();
    exponentiate<kMasked>(s, sequence, rows, query, first_key);
    wgmma_wait_group<0>();
    wgmma_landed(dp);
    release<kPanelsUnderWay, kPanelsUnderWay>();
#pragma unroll
    for (i32 i = 0; i < kBlockKv / 2; ++i) sums[i] = fma_rn_f32(s[i], dp[i] - rows[i / 2 % 2].delta, sums[i]);
  }

  // When all tiles of S that share a tile of the bias have been added.
  __device__ __forceinline__ void leave_bias() {
    fence_proxy_async();  // no product waits for what was read: the release must not overtake it
    bar_warp_sync();
    if (lane_index() == 0) mbarrier_arrive(barriers.bias_empty());
    bias_parity ^= 1;
    has_bias = false;
  }

 private:
  // The product of a tile of queries and one of keys over the head dim, panel after panel, of which each is a group.
  // kBefore: groups under way.
  template <i32 kBefore>
  __device__ __forceinline__ void multiply(ScoreFragments& d) {
#pragma unroll
    for (i32 panel = 0; panel < kPanels; ++panel) {
      if (panel >= kPanelsUnderWay) {
        wgmma_wait_group<kPanelsUnderWay - 1>();
        if (panel == kPanelsUnderWay) release<kBefore + kPanelsUnderWay, kBefore>();
        release<kPanelsUnderWay, 1>();
      }
      mbarrier_wait_parity(barriers.slot_full(slot.stage), slot.parity);
      const u32 at = shared + kSlotOffset + slot.stage * kSlotBytes;
      const u32 queries = tile_place(at + index * kWarpgroupRows * kPanelBytes, kQueryPanelBytes),
          keys = tile_place(at + kQueryPanelBytes, kKeyPanelBytes);
      wgmma_fence();
#pragma unroll
      for (i32 step = 0; step < kPanelSteps; ++step) {
        if (panel * kPanelSteps + step >= kDimSteps) break;
        const u64 a = matrix_descriptor(queries + column_step(step, kQueryPanelBytes)),
            b = matrix_descriptor(keys + column_step(step, kKeyPanelBytes));
        if (panel == 0 && step == 0)
          wgmma_ss_first<false>(d, a, b);
        else
          wgmma_ss<true, false>(d, a, b);
      }
      wgmma_commit_group();
      slot.advance();
    }
  }
  // Slots whose products have landed: so many, from that on which lies kBehind before the next one.
  template <i32 kBehind, i32 kCount>
  __device__ __forceinline__ void release() const {
    if (lane_index() != 0) return;
#pragma unroll
    for (i32 i = 0; i < kCount; ++i) {
      const i32 stage = slot.stage - kBehind + i;
      mbarrier_arrive(barriers.slot_empty(stage < 0 ? stage + kSlots : stage));
    }
  }

  // What is not described by a tensor map each warp loads for its own rows, before the products take the registers.
  __device__ __forceinline__ void load_pairs(const ScoreTiles& at, const Sequence& sequence) {
    const i32 row = first_row_of_warp(), query = at.row_tile * kBlockQ + row, first_key = at.key_tile * kBlockKv;
    if (!has_bias && !args.bias_by_map) {
      Sequence all(args, at.batch);
      wait_bias();
      BiasPanels::load<16, kBlockKv>(bias_tile(shared, 0), row, 0, first_key, last_of(args.seq_kv),
          [&](i32 i) { return bias_of_query(args, all, at.head, query + i); });
    }
    has_bias = true;
    if (!args.attention_mask_by_map) {
      wait_mask();
      AttentionMaskPanels::load<16, kBlockKv>(attention_mask_tile(shared, 0), row, 0, first_key,
          last_of(key_count(args, sequence)),
          [&](i32 i) { return attention_mask_of_query(args, sequence, at.head, query + i); });
    }
  }
  __device__ __forceinline__ void wait_bias() const { mbarrier_wait_parity(barriers.bias_full(), bias_parity); }
  __device__ __forceinline__ void wait_mask() const { mbarrier_wait_parity(barriers.mask_full(), mask_parity); }

  // Turns S into P. An exponent is positive only by what rounding left of LSE: it counts as negative, so that P does
  // not exceed 1. What the tensors hold for a hidden pair may be anything.
  template <bool kMasked>
  __device__ __forceinline__ void exponentiate(ScoreFragments& s, const Sequence& sequence, const QueryRow (&rows)[2],
      i32 query, i32 first_key) {
    HiddenKeys hidden[2] = {HiddenKeys(args, sequence, query, first_key),
        HiddenKeys(args, sequence, query + 8, first_key)};
#pragma unroll
    for (i32 half = 0; half < 2; ++half)
      if (rows[half].lse_log2 == -negative_infinity()) hidden[half].last = -1;
    PairElements pairs(args, shared, 0, index);
#pragma unroll
    for (i32 step = 0; step < kKeySteps; ++step) {
      pairs.read(step);
#pragma unroll
      for (i32 i = 0; i < 8; ++i) {
        const i32 half = i / 2 % 2, distance = 16 * step + i / 4 * 8 + i % 2;
        float& p = s[8 * step + i];
        p = ex2_approx_ftz_f32(-abs_f32(fma_rn_f32(p, args.softmax_scale_log2,
            rows[half].exponent(pairs.bias(i), distance))));
        if (kMasked && hidden[half].has(distance) || !pairs.attends(i)) p = 0;
      }
    }
    fence_proxy_async();
    bar_warp_sync();
    if (lane_index() == 0) mbarrier_arrive(barriers.mask_empty());
    mask_parity ^= 1;
  }
};

__device__ __forceinline__ void store_element(char* to, float x) {
  st_global_b16(to, static_cast<u16>(pack_elements(x, 0)));
}

// Stores the sums of this thread's two rows. first_query: of the thread; first_key: of the tile.
__device__ __forceinline__ void store_rows(const Arguments& args, char* plane, i32 first_query, i32 first_key,
    const ScoreFragments& sums) {
  const i32 quad = static_cast<i32>(lane_index() % 4), keys = args.seq_kv - first_key;
  const i64 row_bytes = kBiasBytes * args.d_bias_stride_row;
  const bool aligned = ((reinterpret_cast<u64>(plane) | static_cast<u64>(row_bytes)) & 15) == 0;
#pragma unroll
  for (i32 half = 0; half < 2; ++half) {
    const i32 query = first_query + 8 * half;
    const bool exists = query < args.seq_q;
    char* const row = plane + query * row_bytes + kBiasBytes * static_cast<i64>(first_key);
    // The lanes of a quad exchange words of four fragments, so that each lane has eight keys that follow each other.
#pragma unroll
    for (i32 group = 0; group < kBlockKv / 32; ++group) {
      u32 words[4];
#pragma unroll
      for (i32 n = 0; n < 4; ++n)
        words[n] = pack_elements(sums[16 * group + 4 * n + 2 * half], sums[16 * group + 4 * n + 2 * half + 1]);
      transpose_in_quad(words);
      const i32 key = 32 * group + 8 * quad;
      if (exists && aligned && key + 8 <= keys) {
        st_global_v4_b32(row + kBiasBytes * key, {words[0], words[1], words[2], words[3]});
      } else if (exists) {
#pragma unroll
        for (i32 i = 0; i < 8; ++i)
          if (key + i < keys) st_global_b16(row + kBiasBytes * (key + i), static_cast<u16>(words[i / 2] >> i % 2 * 16));
      }
    }
  }
}

// Stores a row for all queries: sums over the rows of the CTA in a fixed order, by its lanes, then by its warps. Those
// of warps take the place of the bias, which all have read.
__device__ __forceinline__ void store_sum_of_rows(const Arguments& args, Consumer& consumer, char* row, i32 first_key,
    const ScoreFragments& sums) {
  constexpr u32 kFloat = sizeof(float), kWarps = kWarpgroupWarps * kConsumers;
  const u32 lane = lane_index(), of_warps = consumer.shared + kBiasOffset,
      of_warp = of_warps + kFloat * kBlockKv * (warp_index() - kWarpgroupWarps);
  bar_sync_named(kSumsBarrier, kConsumers * kWarpgroup);
#pragma unroll
  for (i32 n = 0; n < kBlockKv / 8; ++n) {
#pragma unroll
    for (i32 e = 0; e < 2; ++e) {
      float sum = sums[4 * n + e] + sums[4 * n + 2 + e];
      sum += shfl_sync_bfly_f32<4>(sum);
      sum += shfl_sync_bfly_f32<8>(sum);
      sum += shfl_sync_bfly_f32<16>(sum);
      if (lane < 4) st_shared_b32(of_warp + kFloat * (8 * n + 2 * lane + e), f32_to_bits(sum));
    }
  }
  bar_sync_named(kSumsBarrier, kConsumers * kWarpgroup);
  if (consumer.index != 0) return;
  static_assert(kBlockKv == kWarpgroup);
  const u32 key = thread_index() % kWarpgroup;
  float sum = 0;
  for (u32 warp = 0; warp < kWarps; ++warp)
    sum += bits_to_f32(ld_shared_b32(of_warps + kFloat * (warp * kBlockKv + key)));
  if (first_key + static_cast<i32>(key) < args.seq_kv)
    store_element(row + kBiasBytes * static_cast<i64>(first_key + static_cast<i32>(key)), sum);
}

__device__ __forceinline__ void consume(const Arguments& args, const Barriers& barriers, u32 shared, i32 index) {
  Consumer consumer{args, barriers, shared, index};
  for (u32 number = first_number(); is_number(args, number); number = next_number(number)) {
    SharingTiles tiles(args, BiasTile(args, number));
    ScoreFragments sums = {};
    const bool any = tiles.any;
    while (tiles.any) {
      if (tiles.hides)
        consumer.add_tile<true>(tiles, sums);
      else
        consumer.add_tile<false>(tiles, sums);
    }
    const BiasTile tile(args, static_cast<u32>(opaque_i32(static_cast<i32>(number))));  // again, not through the loop
    char* const plane = static_cast<char*>(args.d_bias) +
        kBiasBytes * (tile.batch(args) * args.d_bias_stride_batch + tile.head(args) * args.d_bias_stride_head);
    const i32 first_key = tile.key_tile * kBlockKv;
    if (args.bias_rows > 1) {
      if (any) consumer.leave_bias();
      store_rows(args, plane,
          tile.row_tile * kBlockQ + consumer.first_row_of_warp() + static_cast<i32>(lane_index() / 4), first_key, sums);
    } else if (any) {
      store_sum_of_rows(args, consumer, plane, first_key, sums);
      consumer.leave_bias();
    } else {
      const i32 key = first_key + static_cast<i32>(thread_index() % kWarpgroup);
      if (index == 0 && key < args.seq_kv) store_element(plane + kBiasBytes * static_cast<i64>(key), 0);
    }
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    attune_backward_bias_sm90(const __grid_constant__ Arguments args) {
  const u32 shared = shared_base();
  const Barriers barriers{shared + kBarrierOffset};
  const u32 warp = warp_index();
  if (thread_index() == 0) {
    prefetch_tensormap(args.q_map);
    prefetch_tensormap(args.k_map);
    prefetch_tensormap(args.d_o_map);
    prefetch_tensormap(args.v_map);
    if (args.bias_by_map) prefetch_tensormap(args.bias_map);
    if (args.attention_mask_by_map) prefetch_tensormap(args.attention_mask_map);
    barriers.init();
  }
  bar_sync();
  if (warp < kWarpgroupWarps) {
    setmaxnreg_dec<kProducerRegisters>();
    if (thread_index() == 0) load_operands(args, barriers, shared);
    if (thread_index() == kWarpSize) load_pair_tiles(args, barriers, shared);
  } else {
    setmaxnreg_inc<kConsumerRegisters>();
    consume(args, barriers, shared, static_cast<i32>(warp / kWarpgroupWarps - 1));
  }
}
static_assert(sizeof(Arguments) == kArgumentBytes, "the host packs the arguments as this compiler lays them out");

}  // namespace attune_ae60f89d3b202ccd
