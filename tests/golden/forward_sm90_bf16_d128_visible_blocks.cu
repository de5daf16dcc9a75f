// attune forward bf16 d128 causal attention-mask=bhqk sm90 q128 kv128 st2 overlap=within pst1 visible-blocks · source 61b2a06776ba087f
//
// Attention forward on Hopper (wgmma, TMA, mbarriers), for tiles of queries:
//
//   for each block of keys:                           S = Q Kᵀ, masked        m' = max(m, rowmax S)
//                                                     P = exp2(c S - c m')    l = l·exp2(c m - c m') + rowsum P
//                                                     O = O·exp2(c m - c m') + P V
//   O = O / l,   LSE = scale·m + ln l,   c = scale·log2(e)
//
// A query attends to the keys for which its attention mask is true, of those that it sees.
//
// Blocks of keys are passed over where the attention mask shows a tile's rows none: another kernel has found them.
//
// Warpgroup 0 is the producer: one thread of it copies tiles of Q, K and V by TMA, another one tiles of tensors of
// pairs. Each of the others owns 64 queries of the tile; their S and O stay in registers, P too or in shared memory.
//
// shared memory, bytes; a panel holds kPanelColumns columns of all rows of its tile:
//        0  Q  [1][2][128][64]
//    32768  K  [2][2][128][64]
//    98304  V  [2][2][128][64]
//   163840  attention mask  [1][1][128][128]
//   180224  barriers, numbers of tiles
//   180324  end

namespace attune_c5d26362a30a9ef7 {

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
__device__ __forceinline__ void st_global_b32(void* to, u32 x) {
  asm volatile("st.global.b32 [%0], %1;" ::"l"(to), "r"(x) : "memory");
}
__device__ __forceinline__ void st_global_f32(void* to, float x) {
  asm volatile("st.global.f32 [%0], %1;" ::"l"(to), "f"(x) : "memory");
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

// Two floats rounded to 16 bits: `high` to the upper half (PTX's operand order).
__device__ __forceinline__ u32 cvt_rn_bf16x2_f32(float high, float low) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
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
// Clamped to [0, 1]; NaN becomes 0.
__device__ __forceinline__ float max_f32(float a, float b) { return fmaxf(a, b); }
__device__ __forceinline__ float abs_f32(float x) { return fabsf(x); }

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
__device__ __forceinline__ void bar_arrive_named(u32 name, u32 threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(name), "r"(threads) : "memory");
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
// wgmma with a from registers: its fragment is a[4 step], ... a[4 step + 3].
template <bool kAccumulate, bool kTransposed, i32 kFragments>
__device__ __forceinline__ void wgmma_rs(float (&d)[64], const u32 (&a)[kFragments], i32 step, u64 b_descriptor) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, "
      "%68, p, 1, 1, %70;\n"
      "}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
        "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
      : "r"(a[4 * step]), "r"(a[4 * step + 1]), "r"(a[4 * step + 2]), "r"(a[4 * step + 3]), "l"(b_descriptor),
        "n"(kAccumulate ? 1 : 0),
        "n"(kTransposed ? 1 : 0));
}
// #endregion

struct Arguments {
  TensorMap q_map;
  TensorMap k_map;
  TensorMap v_map;
  void* o;
  float* lse;
  i64 o_stride_batch;
  i64 o_stride_head;
  i64 o_stride_row;
  i32 batch;
  i32 heads_q;
  i32 group_size;
  i32 seq_q;
  i32 seq_kv;
  i32 query_tiles;
  i32 tiles;
  i32 mask_offset;
  float softmax_scale;
  float softmax_scale_log2;
  const void* attention_mask;
  i64 attention_mask_stride_batch;
  i64 attention_mask_stride_head;
  i64 attention_mask_stride_row;
  TensorMap attention_mask_map;
  i32 attention_mask_by_map;
  i32* visible_blocks;
  i32 attention_mask_batch;
  i32 attention_mask_heads;
};
constexpr u32 kArgumentBytes = 704;

constexpr i32 kHeadDimQk = 128, kHeadDimV = 128;  // elements of a row of Q and K, and of V and O
constexpr i32 kElementBytes = 2;
constexpr i32 kBlockQ = 128, kBlockKv = 128, kConsumers = 2;
constexpr i32 kStages = 2, kVStages = 2, kQStages = 1;  // tiles of K, of V, of Q
constexpr bool kEvenTiles = false;      // lengths are multiples of the tiles
constexpr bool kPartialBlocks = true;   // whether any block can need a mask
constexpr bool kOrderedWarpgroups = false;       // whether warpgroups issue their products in a fixed order
constexpr float kRescaleThreshold = 0;   // in powers of two; 0: rescale at every block
// powers of two by which P is smaller than row_max says, so that it never exceeds 1; 0: no room below
constexpr float kHeadroom = 0;
constexpr i32 kProducerRegisters = 24, kConsumerRegisters = 240;  // 0: as they are at launch
constexpr i32 kCtasPerSm = 1, kCluster = 1;  // CTAs

constexpr i32 kWarpgroup = 128;                  // threads
constexpr i32 kThreads = (kConsumers + 1) * kWarpgroup;
constexpr i32 kPanelColumns = 64, kPanels = 2;
constexpr u32 kPanelBytes = kElementBytes * kPanelColumns;  // of a row
constexpr u32 kQPanelStride = kBlockQ * kPanelBytes, kKvPanelStride = kBlockKv * kPanelBytes;
constexpr u32 kQTileBytes = kPanels * kQPanelStride, kKvTileBytes = kPanels * kKvPanelStride;
constexpr u32 kQOffset = 0;
constexpr u32 kKOffset = 32768;
constexpr u32 kVOffset = 98304;
constexpr u32 kAttentionMaskOffset = 163840;
constexpr u32 kBarrierOffset = 180224;
constexpr i32 kDimSteps = (kHeadDimQk + 15) / 16;  // k16 steps of Q Kᵀ; columns beyond the head dim are zeros
constexpr i32 kKeySteps = kBlockKv / 16;         // k16 steps of P V
static_assert(kBlockQ == 64 * kConsumers && kBlockKv % 16 == 0 && kHeadDimV % 8 == 0 &&
    kPanels * kPanelColumns >= 16 * kDimSteps);
static_assert(kHeadDimQk == kHeadDimV);  // rows of all tiles lie alike
static_assert(kKOffset >= kQOffset + kQStages * kQTileBytes && kVOffset >= kKOffset + kStages * kKvTileBytes);
static_assert(kBarrierOffset >= kVOffset + kVStages * kKvTileBytes);

// A thread's accumulators: element 4 n + i lies in row lane / 4 + 8 (i / 2) of its warp's 16 rows, in column 8 n + 2
// (lane % 4) + i % 2.
using ScoreFragments = float[kBlockKv / 2];
using OutputFragments = float[kHeadDimV / 2];

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
// Two elements of the problem's type in a register.
__device__ __forceinline__ u32 pack_elements(float low, float high) { return cvt_rn_bf16x2_f32(high, low); }
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

// The rows of a head in a tensor without columns, such as LSE, which is packed: (batch, heads, queries); and the place
// of a row there.
__device__ __forceinline__ i64 packed_query_row(const Arguments& args, const Sequence& sequence, i32 head, i64 row) {
  return (static_cast<i64>(sequence.batch) * args.heads_q + head) * args.seq_q + row;
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

// The keys that a query does not attend to, by their distance from a key.
struct HiddenKeys {
  i32 last;  // that is attended to

  __device__ __forceinline__ HiddenKeys(const Arguments& args, const Sequence& sequence, i32 query, i32 from)
      : last(last_key(args, sequence, query) - from) {}
  __device__ __forceinline__ void move(i32 keys) { last -= keys; }
  __device__ __forceinline__ bool has(i32 distance) const { return distance > last; }
};
// Tensors with an element for each pair of a query and a key of a head. A dimension along which one repeats has a
// stride of 0. Elements of keys lie one after the other. What is read belongs to the sequence, whatever the
// coordinates: those of no query or no key are the last ones'. Kernels hide such pairs, or multiply their P by rows of
// zeros, which takes a number.
__device__ __forceinline__ i32 last_of(i32 count) { return count > 0 ? count - 1 : 0; }
__device__ __forceinline__ i32 clamped(i32 x, i32 count) { return x < count ? x : last_of(count); }
__device__ __forceinline__ const char* attention_mask_of_query(const Arguments& args, const Sequence& sequence,
    i32 head, i32 query) {
  const i64 offset = sequence.pair_offset(args.attention_mask_stride_batch) + head * args.attention_mask_stride_head;
  return static_cast<const char*>(args.attention_mask) +
      (offset + clamped(query, query_count(args, sequence)) * args.attention_mask_stride_row);
}
__device__ __forceinline__ bool attends(const char* of_query, i32 key) { return ld_global_u8(of_query + key) != 0; }

// What happens to the scores of a query between the product and the mask, beside ScoreFunction, by the distance of a
// key from the key `from`.
struct ScoreTerms {

  // kEdge: the key may lie on either side of the query's diagonal, or be none of the sequence.
  template <bool kEdge>
  __device__ __forceinline__ float apply(const Arguments& /*args*/, float score, i32 /*distance*/, bool attends) const {
    if (!attends) score = negative_infinity();
    return score;
  }
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

// Changes the scores q·k of a block before they are masked, and takes a gradient back through that change. Here scores
// stay as they are.
struct ScoreFunction {
  ScoreFunction() = default;
  __device__ __forceinline__ explicit ScoreFunction(const Arguments&) {}
  __device__ __forceinline__ void modify(ScoreFragments& /*scores*/) {}
  // P times the derivative of the change.
  __device__ __forceinline__ float slope(float p, float /*score*/) const { return p; }
};

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

// The blocks that a tile walks through: those of which the attention mask shows a pair, a bit each, which
// kernels/visible_blocks has left.
struct VisibleBlocks {
  const i32* words;

  VisibleBlocks() = default;
  // tile: among the tiles of queries of a head.
  __device__ __forceinline__ VisibleBlocks(const Arguments& args, const Sequence& sequence, i32 head, i32 tile) {
    const i32 batch_of_mask = args.attention_mask_batch == 1 ? 0 : sequence.batch,
        head_of_mask = args.attention_mask_heads == 1 ? 0 : head;
    const i64 of_head = static_cast<i64>(batch_of_mask) * args.attention_mask_heads + head_of_mask;
    words = args.visible_blocks +
        (of_head * args.query_tiles + tile) * ((args.seq_kv + 32 * kBlockKv - 1) / (32 * kBlockKv));
  }
  // The last one before `block`, or -1.
  __device__ __forceinline__ i32 before(i32 block) const {
    if (block <= 0) return -1;
    i32 word = (block - 1) / 32;
    u32 bits = static_cast<u32>(ld_global_i32(words + word)) << (31 - (block - 1) % 32) >> (31 - (block - 1) % 32);
    while (bits == 0 && word > 0) bits = static_cast<u32>(ld_global_i32(words + --word));
    return bits == 0 ? -1 : 32 * word + static_cast<i32>(bfind_b32(bits));
  }
  // How many of [begin, end).
  __device__ __forceinline__ i32 count(i32 begin, i32 end) const {
    i32 blocks = 0;
    for (i32 block = before(end); block >= begin; block = before(block)) ++blocks;
    return blocks;
  }
};

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

// Named barriers, one for each consumer warpgroup, from these on.
constexpr u32 kOrder = 1, kProbabilities = kOrder + kConsumers;

struct TileIndex {
  i32 tile, batch_head;
};
// Consecutive CTAs take the tiles of one head: its K and V stay in L2.
__device__ __forceinline__ TileIndex tile_index(const Arguments& args, u32 cta) {
  const u32 tiles = args.query_tiles;
  return {static_cast<i32>(cta % tiles), static_cast<i32>(cta / tiles)};
}

// The batch entry and the head of a tile's place among all `heads` of all batch entries: one batch entry after the
// other; but where a tensor has no dimension of batches and one of heads, a head in all batch entries, then the next
// head, so that its elements are read again while they are in L2.
struct HeadOfBatch {
  i32 batch, head;

  __device__ __forceinline__ HeadOfBatch(const Arguments& args, i32 place, i32 heads) {
    if ((args.attention_mask_stride_batch == 0 && args.attention_mask_stride_head != 0)) {
      head = place / args.batch;
      batch = place - head * args.batch;
    } else {
      batch = place / heads;
      head = place - batch * heads;
    }
  }
};

struct QueryTile {
  Sequence sequence;
  i32 head, head_kv;    // its first query head
  i32 first_row, rows;  // rows that exist
  KeyBlocks blocks;     // that any of its rows attends to
  VisibleBlocks visible;  // of these

  __device__ __forceinline__ QueryTile(const Arguments& args, i32 number) {
    const TileIndex index = tile_index(args, number);
    const HeadOfBatch of_batch(args, index.batch_head, args.heads_q);
    sequence = Sequence(args, of_batch.batch);
    head = of_batch.head;
    head_kv = head / args.group_size;
    first_row = index.tile * kBlockQ;
    rows = kEvenTiles || all_rows(args) - first_row > kBlockQ ? kBlockQ : all_rows(args) - first_row;
    blocks = KeyBlocks(args, sequence, position_of(first_row), position_of(first_row + rows - 1));
    visible = VisibleBlocks(args, sequence, head, index.tile);
    blocks.end = visible.before(blocks.end) + 1;
    if (blocks.end < blocks.begin) blocks.end = blocks.begin;
  }
  // The rows of all tiles of a head, also behind the last query of the sequence, and the position in the sequence and
  // the head of a row.
  __device__ __forceinline__ i32 all_rows(const Arguments& args) const { return stored_queries(args, sequence); }
  __device__ __forceinline__ static i32 position_of(i32 row) { return row; }
  __device__ __forceinline__ i32 head_of(i32 /*row*/) const { return head; }
};

// The barriers. A full one completes when TMA has filled its buffer, an empty one when every consumer warp has left it.
struct Barriers {
  u32 base;
  __device__ __forceinline__ u32 q_full(i32 stage) const { return base + 0 + 8 * stage; }
  __device__ __forceinline__ u32 q_empty(i32 stage) const { return base + 8 + 8 * stage; }
  __device__ __forceinline__ u32 k_full(i32 stage) const { return base + 16 + 8 * stage; }
  __device__ __forceinline__ u32 k_empty(i32 stage) const { return base + 32 + 8 * stage; }
  __device__ __forceinline__ u32 v_full(i32 stage) const { return base + 48 + 8 * stage; }
  __device__ __forceinline__ u32 v_empty(i32 stage) const { return base + 64 + 8 * stage; }
  __device__ __forceinline__ u32 pairs_full(i32 stage) const { return base + 80 + 8 * stage; }
  __device__ __forceinline__ u32 pairs_empty(i32 stage) const { return base + 88 + 8 * stage; }
  __device__ __forceinline__ u32 tile_of(i32 q_stage) const { return base + 96 + 4 * q_stage; }

  __device__ __forceinline__ void init() const {
    constexpr u32 kConsumerWarps = 4 * kConsumers;
    for (i32 i = 0; i < 1; ++i) {
      mbarrier_init(q_full(i), 1);
      mbarrier_init(q_empty(i), kConsumerWarps);
    }
    for (i32 i = 0; i < 2; ++i) {
      mbarrier_init(k_full(i), 1);
      mbarrier_init(k_empty(i), kConsumerWarps);
    }
    for (i32 i = 0; i < 2; ++i) {
      mbarrier_init(v_full(i), 1);
      mbarrier_init(v_empty(i), kConsumerWarps);
    }
    for (i32 i = 0; i < 1; ++i) {
      mbarrier_init(pairs_full(i), 1);
      mbarrier_init(pairs_empty(i), kConsumerWarps);
    }
    fence_mbarrier_init();
  }
};

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

// Each CTA takes one tile; the CTAs of a cluster take neighbouring ones.
struct ProducerTiles {
  bool taken = false;

  __device__ __forceinline__ i32 next(const Arguments&, const Barriers&) {
    const i32 tile = taken ? -1 : static_cast<i32>(block_index() / kCluster);
    taken = true;
    return tile;
  }
  __device__ __forceinline__ i32 first(const Arguments& args, const Barriers& barriers) { return next(args, barriers); }
  __device__ __forceinline__ void publish(i32, const Barriers&, PipelineSlot<kQStages>) {}
};

struct ConsumerTiles : ProducerTiles {
  __device__ __forceinline__ i32 next(const Arguments& args, const Barriers& barriers, PipelineSlot<kQStages>) {
    return ProducerTiles::next(args, barriers);
  }
};
// Copies a tile panel by panel; all of it completes on `full`.
template <u32 kPanelStride>
__device__ __forceinline__ void load_tile(u32 to, const TensorMap& map, u32 full, i32 head, MapPlace place) {
  mbarrier_arrive_expect_tx(full, kPanels * kPanelStride);
#pragma unroll
  for (i32 panel = 0; panel < kPanels; ++panel)
    load_box(to + panel * kPanelStride, map, full, panel * kPanelColumns, head, place);
}

// Each CTA loads the tiles of K and V that it needs.
struct KvLoads {
  Barriers barriers;

  // Loads into a buffer that this CTA's consumers have left.
  __device__ __forceinline__ void load(u32 to, const TensorMap& map, u32 full, i32 head, MapPlace place) {
    load_tile<kKvPanelStride>(to, map, full, head, place);
  }
};
// Copies Q, K and V of the CTA's tiles, in the order in which the consumers want them: K before Q, whose buffer is free
// later.
__device__ __forceinline__ void produce(const Arguments& args, const Barriers& barriers, u32 shared) {
  PipelineSlot<kQStages> q;
  PipelineSlot<kStages> k;
  PipelineSlot<kVStages> v;
  ProducerTiles tiles;
  KvLoads loads{barriers};
  const auto load_k = [&](const QueryTile& tile, i32 block) {
    mbarrier_wait_parity(barriers.k_empty(k.stage), k.parity ^ 1);
    loads.load(shared + kKOffset + k.stage * kKvTileBytes, args.k_map, barriers.k_full(k.stage), tile.head_kv,
        place_of_keys(args, tile.sequence, block));
    k.advance();
  };
  const auto load_v = [&](const QueryTile& tile, i32 block) {
    mbarrier_wait_parity(barriers.v_empty(v.stage), v.parity ^ 1);
    loads.load(shared + kVOffset + v.stage * kKvTileBytes, args.v_map, barriers.v_full(v.stage), tile.head_kv,
        place_of_keys(args, tile.sequence, block));
    v.advance();
  };
  for (i32 number = tiles.first(args, barriers); number >= 0; number = tiles.next(args, barriers)) {
    const QueryTile tile(args, number);
    i32 block = tile.blocks.end - 1;
    if (block >= tile.blocks.begin) load_k(tile, block);
    mbarrier_wait_parity(barriers.q_empty(q.stage), q.parity ^ 1);
    tiles.publish(number, barriers, q);
    load_tile<kQPanelStride>(shared + kQOffset + q.stage * kQTileBytes, args.q_map, barriers.q_full(q.stage), tile.head,
                              place_of_queries(args, tile.sequence, QueryTile::position_of(tile.first_row)));
    q.advance();
    while (block >= tile.blocks.begin) {
      const i32 next = tile.visible.before(block);
      if (next >= tile.blocks.begin) load_k(tile, next);
      load_v(tile, block);
      block = next;
    }
  }
  mbarrier_wait_parity(barriers.q_empty(q.stage), q.parity ^ 1);
  tiles.publish(-1, barriers, q);
}

// A warp beside the one that copies Q, K and V copies tiles of tensors of pairs, block after block as consumers want
// them.
constexpr i32 kPairStages = 1;

__device__ __forceinline__ void copy_pairs(const Arguments& args, u32 shared, i32 stage, u32 full,
    const QueryTile& tile, i32 first_key) {
  u32 bytes = 0;
  if (args.attention_mask_by_map) bytes += AttentionMaskPanels::kTileBytes;
  mbarrier_arrive_expect_tx(full, bytes);
  if (args.attention_mask_by_map)
    copy_attention_mask(args, attention_mask_tile(shared, stage), full, tile.sequence.batch, tile.head,
        QueryTile::position_of(tile.first_row), first_key);
}

__device__ __forceinline__ void produce_pairs(const Arguments& args, const Barriers& barriers, u32 shared) {
  PipelineSlot<kPairStages> pairs;
  PipelineSlot<kQStages> q;
  ConsumerTiles tiles;
  for (i32 number; (number = tiles.next(args, barriers, q)) >= 0;) {
    const QueryTile tile(args, number);
    for (i32 block = tile.blocks.end - 1; block >= tile.blocks.begin; block = tile.visible.before(block)) {
      mbarrier_wait_parity(barriers.pairs_empty(pairs.stage), pairs.parity ^ 1);
      bar_warp_sync();
      if (lane_index() == 0)
        copy_pairs(args, shared, pairs.stage, barriers.pairs_full(pairs.stage), tile, block * kBlockKv);
      pairs.advance();
    }
  }
}

// exp2(score * scale + offset), by the special function unit whichever element it is.
__device__ __forceinline__ float exponential(i32, float score, float scale, float offset) {
  return ex2_approx_ftz_f32(fma_rn_f32(score, scale, offset));
}
// A sum of exponentials: NaN where a NaN was among them.
__device__ __forceinline__ float checked_sum(float sum) { return sum; }

// Online softmax of a warpgroup's rows; a thread holds two, 8 apart, and shares each with the other lanes of its quad.
// P is exp2(c s - c m - kHeadroom) with the row's m. What O must be multiplied by when m moves is kept until the
// product that is under way has landed.
struct OnlineSoftmax {
  // Rounding c m changes the exponents of a row by up to 2^-24 |c m|. From here on m is subtracted from the scores
  // before they are multiplied.
  static constexpr float kLargeExponent = 0x1p12f;

  float scale_log2;  // c
  float row_max[2];  // m; -inf only while a row has seen no key
  float row_sum[2];  // this thread's share
  float scale[2];    // of O, if must_scale
  bool must_scale;

  // -c m - kHeadroom of both rows.
  template <bool kMasked>
  __device__ __forceinline__ void find_offsets(float (&offset)[2]) const {
#pragma unroll
    for (i32 half = 0; half < 2; ++half) {
      const float m = finite_row_max<kMasked>(row_max[half]);
      offset[half] = kHeadroom == 0 ? -m * scale_log2 : fma_rn_f32(-m, scale_log2, -kHeadroom);
    }
  }
  __device__ __forceinline__ static bool is_large(const float (&offset)[2]) {
    return (abs_f32(offset[0]) >= kLargeExponent) | (abs_f32(offset[1]) >= kLargeExponent);
  }

  // Takes m from the offsets of rows where it is large, and subtracts it from their scores instead. Those of other rows
  // of the warp stay as they are.
  __device__ __forceinline__ void subtract_large_row_max(ScoreFragments& s, float (&offset)[2]) const {
    if (!vote_sync_any(is_large(offset))) return;
    float m[2];
#pragma unroll
    for (i32 half = 0; half < 2; ++half) {
      const bool large = abs_f32(offset[half]) >= kLargeExponent;
      m[half] = large ? row_max[half] : 0;
      if (large) offset[half] = -kHeadroom;
    }
#pragma unroll
    for (i32 i = 0; i < kBlockKv / 2; ++i) s[i] -= m[i / 2 % 2];
  }

  // Puts P in the place of S, and adds it to this thread's row sums.
  __device__ __forceinline__ void exponentiate(ScoreFragments& s, const float (&offset)[2], float (&sum)[2]) const {
    float sums[4] = {};  // two sums of a row: shorter chains
#pragma unroll
    for (i32 i = 0; i < kBlockKv / 2; ++i) {
      const i32 half = i / 2 % 2;
      s[i] = exponential(i, s[i], scale_log2, offset[half]);
      sums[half + 2 * (i % 2)] += s[i];
    }
    sum[0] = sums[0] + sums[2];
    sum[1] = sums[1] + sums[3];
  }

  // The largest of this thread's scores of each row, and of the quad's.
  __device__ __forceinline__ static void largest_of_thread(const ScoreFragments& s, float (&largest)[2]) {
    float m[4] = {s[0], s[2], s[1], s[3]};
#pragma unroll
    for (i32 i = 4; i < kBlockKv / 2; ++i) m[i / 2 % 2 + 2 * (i % 2)] = max_f32(m[i / 2 % 2 + 2 * (i % 2)], s[i]);
    largest[0] = max_f32(m[0], m[2]);
    largest[1] = max_f32(m[1], m[3]);
  }
  __device__ __forceinline__ static void largest_of_quad(float (&largest)[2]) {
#pragma unroll
    for (i32 half = 0; half < 2; ++half) {
      largest[half] = max_f32(largest[half], shfl_sync_bfly_f32<1>(largest[half]));
      largest[half] = max_f32(largest[half], shfl_sync_bfly_f32<2>(largest[half]));
    }
  }

  // Raises row_max to at least `to`, rescales the sums, and marks O for rescaling.
  template <bool kMasked>
  __device__ __forceinline__ void raise_row_max(const float (&to)[2]) {
#pragma unroll
    for (i32 half = 0; half < 2; ++half) {
      const float old = row_max[half];
      row_max[half] = max_f32(old, to[half]);
      scale[half] = ex2_approx_ftz_f32((old - finite_row_max<kMasked>(row_max[half])) * scale_log2);
      row_sum[half] *= scale[half];
    }
    must_scale = true;
  }

  __device__ __forceinline__ void rescale(OutputFragments& o) const {
    if (!must_scale) return;
#pragma unroll
    for (i32 i = 0; i < kHeadDimV / 2; ++i) o[i] *= scale[i / 2 % 2];
  }

  // The logarithm that a sum of P would have with kHeadroom of 0.
  __device__ __forceinline__ static float log2_without_headroom(float sum) {
    return kHeadroom == 0 ? lg2_approx_ftz_f32(sum) : lg2_approx_ftz_f32(sum) + kHeadroom;
  }

  // A row that has seen no key yet has only scores of -inf: any finite row_max makes their P zero.
  template <bool kMasked>
  __device__ __forceinline__ static float finite_row_max(float m) {
    return kMasked && m == negative_infinity() ? 0 : m;
  }
};

// row_max is the largest score so far or, with kRescaleThreshold, one less than that many powers of two below it.
// Whether a score exceeds it by so much a thread sees from its own scores: from their bits, where the limit is
// positive, for those of positive floats are ordered like integers, of which Hopper finds the largest of three by one
// instruction. The quad is asked for the largest score of a row only where one does.
struct Softmax : OnlineSoftmax {
  static constexpr i32 kNone = -0x7fffffff - 1;
  float room;    // kRescaleThreshold powers of two, as a difference of scores
  i32 limit[2];  // bits of row_max + room; kNone where that is not positive
  bool none;     // whether a row of the warp has no limit in bits

  template <bool kMasked>
  __device__ __forceinline__ void first(ScoreFragments& s) {
    must_scale = false;
    room = kRescaleThreshold / scale_log2;
    largest_of_thread(s, row_max);
    largest_of_quad(row_max);
    set_limit();
    float offset[2];
    find_offsets<kMasked>(offset);
    subtract_large_row_max(s, offset);
    exponentiate(s, offset, row_sum);
    row_sum[0] = checked_sum(row_sum[0]);
    row_sum[1] = checked_sum(row_sum[1]);
  }

  // kMayHide: any score may be -inf; kMasked: many are, as in a block that a diagonal crosses.
  template <bool kMayHide, bool kMasked>
  __device__ __forceinline__ void update(ScoreFragments& s) {
    must_scale = false;
    float largest[2];  // of a row that does not reach its limit it may be anything below
    float offset[2];
    find_offsets<kMayHide>(offset);
    bool reaches = is_large(offset);
    if (kMasked || none) {
      largest_of_thread(s, largest);  // -inf - -inf is NaN and compares false
#pragma unroll
      for (i32 half = 0; half < 2; ++half) reaches |= (largest[half] - row_max[half]) * scale_log2 > kRescaleThreshold;
    } else {
#pragma unroll
      for (i32 half = 0; half < 2; ++half) {
        const i32 most = most_bits(s, half);
        reaches |= most >= limit[half];
        largest[half] = bits_to_f32(static_cast<u32>(most));
      }
    }
    if (vote_sync_any(reaches)) {
      largest_of_quad(largest);
      raise_row_max<kMayHide>(largest);
      set_limit();
      find_offsets<kMayHide>(offset);
      subtract_large_row_max(s, offset);
    }
    float sum[2];
    exponentiate(s, offset, sum);
    row_sum[0] += checked_sum(sum[0]);
    row_sum[1] += checked_sum(sum[1]);
  }

 private:
  // The largest of this thread's scores of a row, if any is positive; otherwise something negative.
  __device__ __forceinline__ static i32 most_bits(const ScoreFragments& s, i32 half) {
    i32 most[2] = {bits_of(s[2 * half]), bits_of(s[2 * half + 1])};  // two chains: shorter
#pragma unroll
    for (i32 i = 4; i < kBlockKv / 2; i += 4) {
#pragma unroll
      for (i32 e = 0; e < 2; ++e)
        most[e] = most[e] > bits_of(s[i + 2 * half + e]) ? most[e] : bits_of(s[i + 2 * half + e]);
    }
    return most[0] > most[1] ? most[0] : most[1];
  }
  __device__ __forceinline__ static i32 bits_of(float x) { return static_cast<i32>(f32_to_bits(x)); }

  __device__ __forceinline__ void set_limit() {
#pragma unroll
    for (i32 half = 0; half < 2; ++half) {
      const float largest = row_max[half] + room;
      limit[half] = largest > 0 ? bits_of(largest) : kNone;
    }
    none = vote_sync_any((limit[0] == kNone) | (limit[1] == kNone));
  }
};

// Q as the A operand of Q Kᵀ: read from shared memory at each step.
struct QueryOperand {
  u32 place;
  __device__ __forceinline__ void load(u32 tile) { place = tile_place(tile, kQPanelStride); }
  template <bool kAccumulate>
  __device__ __forceinline__ void multiply(ScoreFragments& s, i32 step, u64 keys) const {
    // Descriptors of many steps would be kept from block to block, beyond what uniform registers hold: each would come
    // from a lane's.
    const u32 first = kDimSteps > 8 ? static_cast<u32>(opaque_i32(static_cast<i32>(place))) : place;
    wgmma_ss<kAccumulate, false>(s, matrix_descriptor(first + column_step(step, kQPanelStride)), keys);
  }
};

// P as the A operand of P V, in registers: the elements of S lie as wgmma wants them of A.
struct ProbabilityOperand {
  u32 fragments[kBlockKv / 4];

  __device__ __forceinline__ void put(const ScoreFragments& s, u32, i32) {
#pragma unroll
    for (i32 i = 0; i < kBlockKv / 4; ++i) fragments[i] = pack_elements(s[2 * i], s[2 * i + 1]);
  }
  __device__ __forceinline__ void multiply(OutputFragments& o, i32 step, u64 values) const {
    wgmma_rs<true, true>(o, fragments, step, values);
  }
};
__device__ __forceinline__ i32 uniform(i32 x) { return static_cast<i32>(redux_sync_or_b32(static_cast<u32>(x))); }

// The part of a warpgroup in a tile: 64 rows, and the blocks of keys that they attend to.
struct RowsOfWarpgroup {
  Sequence sequence;
  i32 first_row;  // in the sequence, of this thread's first row
  KeyBlocks blocks;
  i32 unused_blocks;  // of the tile, behind this warpgroup's
  static constexpr i32 unused_first_blocks = 0;
  VisibleBlocks visible;
  i32 head;  // the tile's first

  __device__ __forceinline__ RowsOfWarpgroup(const Arguments& args, const QueryTile& tile, i32 consumer)
      : sequence(tile.sequence) {
    const i32 first = 64 * consumer, last = (kEvenTiles || tile.rows > first + 64 ? first + 64 : tile.rows) - 1;
    first_row = tile.first_row + first + static_cast<i32>(warp_index() % 4 * 16 + lane_index() / 4);
    blocks.end = first < tile.rows
        ? KeyBlocks::end_of(args, sequence, QueryTile::position_of(tile.first_row + first),
        QueryTile::position_of(tile.first_row + last)) : blocks.begin;
    blocks.unmasked_end = KeyBlocks::unmasked_end_of(args, sequence, QueryTile::position_of(tile.first_row + first),
        QueryTile::position_of(tile.first_row + last));
    unused_blocks = tile.blocks.end - blocks.end;
    keep_visible(tile);
    head = tile.head;
  }
  __device__ __forceinline__ bool any() const { return blocks.begin < blocks.end; }
  // Every lane has the same numbers, as ptxas cannot know of a load.
  __device__ __forceinline__ i32 before(i32 block) const { return uniform(visible.before(block)); }
  // Bounds the tile's walk, which passes over blocks that are not visible.
  __device__ __forceinline__ void keep_visible(const QueryTile& tile) {
    visible = tile.visible;
    blocks.end = before(blocks.end < tile.blocks.end ? blocks.end : tile.blocks.end) + 1;
    unused_blocks = uniform(visible.count(blocks.end, tile.blocks.end));
  }
  __device__ __forceinline__ i32 head_of(i32 /*row*/) const { return head; }
};

// Sets the scores of keys that their row does not attend to to -inf.
__device__ __forceinline__ void mask_scores(ScoreFragments& s, const Arguments& args, const RowsOfWarpgroup& rows,
    i32 block) {
  const i32 first_key = block * kBlockKv + static_cast<i32>(lane_index() % 4 * 2);
#pragma unroll
  for (i32 half = 0; half < 2; ++half) {
    const HiddenKeys hidden(args, rows.sequence, QueryTile::position_of(rows.first_row + 8 * half), first_key);
#pragma unroll
    for (i32 n = 0; n < kBlockKv / 8; ++n) {
#pragma unroll
      for (i32 e = 0; e < 2; ++e)
        if (hidden.has(8 * n + e)) s[4 * n + 2 * half + e] = negative_infinity();
    }
  }
}

// Where a warpgroup stands in the rings, and its products.
struct Consumer {
  Barriers barriers;
  u32 shared;
  i32 index;  // of the warpgroup among the consumers
  PipelineSlot<kQStages> q;
  PipelineSlot<kStages> k;
  PipelineSlot<kVStages> v;
  PipelineSlot<kPairStages> pairs;
  QueryOperand query;
  ProbabilityOperand probabilities;

  __device__ __forceinline__ void wait_q() const { mbarrier_wait_parity(barriers.q_full(q.stage), q.parity); }
  __device__ __forceinline__ void wait_k() const { mbarrier_wait_parity(barriers.k_full(k.stage), k.parity); }
  __device__ __forceinline__ void wait_v() const { mbarrier_wait_parity(barriers.v_full(v.stage), v.parity); }
  __device__ __forceinline__ void release_q() {
    if (lane_index() == 0) mbarrier_arrive(barriers.q_empty(q.stage));
    q.advance();
  }
  __device__ __forceinline__ void release_k() {
    if (lane_index() == 0) mbarrier_arrive(barriers.k_empty(k.stage));
    k.advance();
  }
  __device__ __forceinline__ void release_v() {
    if (lane_index() == 0) mbarrier_arrive(barriers.v_empty(v.stage));
    v.advance();
  }
  __device__ __forceinline__ void wait_pairs() const {
    mbarrier_wait_parity(barriers.pairs_full(pairs.stage), pairs.parity);
  }
  __device__ __forceinline__ void release_pairs() {
    if (lane_index() == 0) mbarrier_arrive(barriers.pairs_empty(pairs.stage));
    pairs.advance();
  }

  // Where warpgroups are ordered, each issues its products when its predecessor lets it.
  __device__ __forceinline__ void wait_order() const {
    if (kOrderedWarpgroups) bar_sync_named(kOrder + index, 2 * kWarpgroup);
  }
  __device__ __forceinline__ void pass_order() const {
    if (kOrderedWarpgroups) bar_arrive_named(kOrder + (index + 1 == kConsumers ? 0 : index + 1), 2 * kWarpgroup);
  }

  __device__ __forceinline__ void load_query() {
    query.load(shared + kQOffset + q.stage * kQTileBytes + index * 64 * kPanelBytes);
  }
  // S = Q Kᵀ
  __device__ __forceinline__ void issue_qk(ScoreFragments& s) const {
    const u32 keys = tile_place(shared + kKOffset + k.stage * kKvTileBytes, kKvPanelStride);
    wgmma_fence();
    query.multiply<false>(s, 0, matrix_descriptor(keys));
#pragma unroll
    for (i32 step = 1; step < kDimSteps; ++step)
      query.multiply<true>(s, step, matrix_descriptor(keys + column_step(step, kKvPanelStride)));
    wgmma_commit_group();
  }
  // P in 16 bits, for the next product with V.
  __device__ __forceinline__ void put_probabilities(const ScoreFragments& s) { probabilities.put(s, shared, index); }
  // O += P V
  __device__ __forceinline__ void issue_pv(OutputFragments& o) const {
    const u32 values = tile_place(shared + kVOffset + v.stage * kKvTileBytes, kKvPanelStride);
    wgmma_fence();
#pragma unroll
    for (i32 step = 0; step < kKeySteps; ++step)
      probabilities.multiply(o, step, matrix_descriptor(values + row_step(step)));
    wgmma_commit_group();
  }
};

// Passes over blocks that other warpgroups need and this one does not: waits for them only to release them, and passes
// the order on. A buffer is released only after all lanes have seen it full; bar_warp_sync says so where no product
// holds the warp together.
__device__ __forceinline__ void skip_key(Consumer& consumer) {
  consumer.wait_k();
  consumer.wait_pairs();
  bar_warp_sync();
  consumer.release_k();
  consumer.release_pairs();
  consumer.wait_order();
  consumer.pass_order();
}
__device__ __forceinline__ void skip_value(Consumer& consumer) {
  consumer.wait_v();
  bar_warp_sync();
  consumer.release_v();
}
__device__ __forceinline__ void skip_keys(Consumer& consumer, i32 count) {
  for (i32 i = 0; i < count; ++i) skip_key(consumer);
}
__device__ __forceinline__ void skip_values(Consumer& consumer, i32 count) {
  for (i32 i = 0; i < count; ++i) skip_value(consumer);
}
__device__ __forceinline__ void skip_blocks(Consumer& consumer, i32 count) {
  for (i32 i = 0; i < count; ++i) {
    skip_key(consumer);
    skip_value(consumer);
  }
}

__device__ __forceinline__ void clear(OutputFragments& o) {
#pragma unroll
  for (i32 i = 0; i < kHeadDimV / 2; ++i) o[i] = 0;
}

// What the tensors of pairs hold for a thread's scores of sixteen keys, step after step. Element i is that of its score
// 8·step + i.
struct PairElements {
  u32 attention_mask_rows[2];  // where the word with the first of its elements lies, of both of its rows
  u32 attention_mask_pairs[4];

  PairElements() = default;
  // index: of the warpgroup among the consumers.
  __device__ __forceinline__ PairElements(const Arguments& args, u32 shared, i32 stage, i32 index) {
    const i32 lane = static_cast<i32>(lane_index()), first = 64 * index + static_cast<i32>(warp_index() % 4) * 16;
#pragma unroll
    for (i32 half = 0; half < 2; ++half) {
      const i32 row = first + lane / 4 + 8 * half;
      attention_mask_rows[half] = AttentionMaskPanels::row(attention_mask_tile(shared, stage),
          row_of_attention_mask(args, row)) ^ lane % 4 / 2 * 4;
    }
  }
  __device__ __forceinline__ void read(i32 step) {
#pragma unroll
    for (i32 i = 0; i < 4; ++i) {
      attention_mask_pairs[i] =
          ld_shared_b32(AttentionMaskPanels::at(attention_mask_rows[i % 2],
          16 * step + i / 2 * 8)) >> lane_index() % 2 * 16;
    }
  }
  __device__ __forceinline__ bool attends(i32 i) const {
    return (attention_mask_pairs[pair_of(i)] >> i % 2 * 8 & 0xff) != 0;
  }

 private:
  __device__ __forceinline__ static i32 pair_of(i32 i) { return i / 2 % 2 + i / 4 * 2; }
};

// What does not come by tensor map: the warp's rows of a tile whose first key is first_key.
__device__ __forceinline__ void load_pairs(const Arguments& args, const RowsOfWarpgroup& rows, i32 first_key,
    const Consumer& consumer) {
  const i32 row_of_tile = 64 * consumer.index + static_cast<i32>(warp_index() % 4) * 16,
      row = rows.first_row - static_cast<i32>(lane_index() / 4);
  const i32 last = last_of(key_count(args, rows.sequence));
  if (!args.attention_mask_by_map)
    AttentionMaskPanels::load<16, kBlockKv>(attention_mask_tile(consumer.shared, consumer.pairs.stage), row_of_tile, 0,
        first_key, last, [&](i32 i) {
      return attention_mask_of_query(args, rows.sequence, rows.head_of(row + i), QueryTile::position_of(row + i));
    });
}

// What tensors of pairs hold for a block's scores, and all that is added to these.
struct PairTerms {
  const Arguments& args;
  const RowsOfWarpgroup& rows;
  i32 block;
  Consumer& consumer;
  PairElements steps[kKeySteps];

  // Beside the product for S, which nothing of it waits for.
  __device__ __forceinline__ PairTerms(const Arguments& args, const RowsOfWarpgroup& rows, i32 block,
      Consumer& consumer) : args(args), rows(rows), block(block), consumer(consumer) {
    consumer.wait_pairs();
    load_pairs(args, rows, block * kBlockKv, consumer);
    const PairElements first(args, consumer.shared, consumer.pairs.stage, consumer.index);
#pragma unroll
    for (i32 step = 0; step < kKeySteps; ++step) {
      steps[step] = first;
      steps[step].read(step);
    }
    leave();
  }
  // kEdge: as ScoreTerms has it.
  template <bool kEdge>
  __device__ __forceinline__ void apply(ScoreFragments& s) {
    const ScoreTerms terms[2] = {};
#pragma unroll
    for (i32 step = 0; step < kKeySteps; ++step) {
      const PairElements& elements = steps[step];
#pragma unroll
      for (i32 i = 0; i < 8; ++i) {
        float& score = s[8 * step + i];
        score = terms[i / 2 % 2].apply<kEdge>(args, score, 16 * step + i / 4 * 8 + i % 2, elements.attends(i));
      }
    }
  }

 private:
  __device__ __forceinline__ void leave() {
    fence_proxy_async();  // no product waits for what was read: the release must not overtake it
    bar_warp_sync();
    consumer.release_pairs();
  }
};

// Stores O / l and LSE of this thread's two rows; `row` is the first of them in the sequence. The lanes of a quad
// exchange words of four fragments, so that each lane stores 16 bytes of a row.
__device__ __forceinline__ void store_rows(const Arguments& args, const QueryTile& tile, i32 row, OutputFragments& o,
    Softmax& softmax) {
  constexpr float kLn2 = 0.693147180559945309f;
  const u32 quad = lane_index() % 4;
#pragma unroll
  for (i32 half = 0; half < 2; ++half) {
    float sum = softmax.row_sum[half];
    sum += shfl_sync_bfly_f32<1>(sum);
    sum += shfl_sync_bfly_f32<2>(sum);
    // a row that has seen no key keeps its zeros; a NaN stays one
    const float inverse = sum != 0 ? rcp_approx_ftz_f32(sum) : 0;
    const i32 i = row + 8 * half;
    const bool exists = kEvenTiles || i < tile.first_row + tile.rows;
    const i32 head = tile.head_of(i), position = QueryTile::position_of(i);
    if (args.lse != nullptr && quad == 0 && exists) {
      const float lse = sum != 0
          ? fma_rn_f32(softmax.row_max[half], args.softmax_scale, softmax.log2_without_headroom(sum) * kLn2)
          : negative_infinity();
      st_global_f32(args.lse + packed_query_row(args, tile.sequence, head, position), lse);
    }
    char* const to =
        static_cast<char*>(args.o) +
            kElementBytes *
            (tile.sequence.query_offset(args.o_stride_batch, args.o_stride_row) + head * args.o_stride_head +
            position * args.o_stride_row);
#pragma unroll
    for (i32 group = 0; group < kHeadDimV / 32; ++group) {
      u32 words[4];
#pragma unroll
      for (i32 n = 0; n < 4; ++n)
        words[n] = pack_elements(o[16 * group + 4 * n + 2 * half] * inverse,
            o[16 * group + 4 * n + 2 * half + 1] * inverse);
      transpose_in_quad(words);
      if (exists) st_global_v4_b32(to + 64 * group + 16 * quad, {words[0], words[1], words[2], words[3]});
    }
#pragma unroll
    for (i32 n = kHeadDimV / 32 * 4; n < kHeadDimV / 8; ++n)
      if (exists)
        st_global_b32(to + 16 * n + 4 * quad,
            pack_elements(o[4 * n + 2 * half] * inverse, o[4 * n + 2 * half + 1] * inverse));
  }
}

// S of a block of keys is issued with P V of the block before it: the softmax of the one runs beside the product of the
// other.
struct Mainloop {
  // O is rescaled beside the product for S; a wide one before it, which was seen to be faster.
  static constexpr bool kRescaleLate = kHeadDimV <= 128;

  const Arguments& args;
  Consumer consumer;
  Softmax softmax;
  ScoreFragments s;
  OutputFragments o;

  // Leaves the fragments unset: the first product overwrites S, and setting it would touch registers of that product.
  __device__ __forceinline__ Mainloop(const Arguments& args, const Barriers& barriers, u32 shared, i32 index)
      : args(args), consumer{barriers, shared, index}, softmax{{args.softmax_scale_log2}} {}

  // The tile's first block: there is no product to run beside it.
  template <bool kMasked>
  __device__ __forceinline__ void begin(const RowsOfWarpgroup& rows, i32 block) {
    consumer.wait_k();
    consumer.wait_order();
    consumer.issue_qk(s);              // S = Q Kᵀ
    consumer.pass_order();
    PairTerms terms(args, rows, block, consumer);
    wgmma_wait_group<0>();
    wgmma_landed(s);
    consumer.release_k();
    softmax_of<true, kMasked>(rows, block, terms);
    consumer.put_probabilities(s);
  }
  template <bool kMasked>
  __device__ __forceinline__ void step(const RowsOfWarpgroup& rows, i32 block) {
    consumer.wait_k();
    consumer.wait_order();
    consumer.issue_qk(s);              // S = Q Kᵀ
    if (kRescaleLate) softmax.rescale(o);
    consumer.wait_v();
    consumer.issue_pv(o);              // O = O + P V
    consumer.pass_order();
    PairTerms terms(args, rows, block, consumer);
    wgmma_wait_group<1>();
    wgmma_landed(s);
    consumer.release_k();
    softmax_of<false, kMasked>(rows, block, terms);
    wgmma_wait_group<0>();
    wgmma_landed(o);
    consumer.release_v();
    consumer.put_probabilities(s);
    if (!kRescaleLate) softmax.rescale(o);
  }
  // The first block of a tile beside the last product of the tile before it, whose O is whole afterwards, with its
  // maxima and sums in `earlier`.
  template <bool kMasked>
  __device__ __forceinline__ void join(const RowsOfWarpgroup& rows, i32 block, Softmax& earlier) {
    consumer.wait_k();
    consumer.wait_order();
    consumer.issue_qk(s);              // S = Q Kᵀ
    if (kRescaleLate) softmax.rescale(o);
    consumer.wait_v();
    consumer.issue_pv(o);              // O = O + P V
    consumer.pass_order();
    PairTerms terms(args, rows, block, consumer);
    wgmma_wait_group<1>();
    wgmma_landed(s);
    consumer.release_k();
    earlier = softmax;
    softmax_of<true, kMasked>(rows, block, terms);
    wgmma_wait_group<0>();
    wgmma_landed(o);
    consumer.release_v();
    consumer.put_probabilities(s);
  }
  // The product of the tile's last block.
  __device__ __forceinline__ void end() {
    if (kRescaleLate) softmax.rescale(o);
    consumer.wait_v();
    consumer.issue_pv(o);              // O = O + P V
    wgmma_wait_group<0>();
    wgmma_landed(o);
    consumer.release_v();
  }

 private:
  template <bool kFirst, bool kMasked>
  __device__ __forceinline__ void softmax_of(const RowsOfWarpgroup& rows, i32 block, PairTerms& terms) {
    ScoreFunction(args).modify(s);
    terms.apply<kMasked>(s);
    if (kMasked) mask_scores(s, args, rows, block);
    if (kFirst)
      softmax.first<true>(s);
    else
      softmax.update<true, true>(s);
  }
};
// What a consumer warpgroup does with each tile.
__device__ __forceinline__ void consume(const Arguments& args, const Barriers& barriers, u32 shared, i32 index) {
  Mainloop mainloop(args, barriers, shared, index);
  Consumer& consumer = mainloop.consumer;
  ConsumerTiles tiles;
  if (index == kConsumers - 1) consumer.pass_order();
  for (i32 number; (number = tiles.next(args, barriers, consumer.q)) >= 0;) {
    const QueryTile tile(args, number);
    const RowsOfWarpgroup rows(args, tile, index);
    consumer.wait_q();
    consumer.load_query();
    skip_blocks(consumer, rows.unused_blocks);
    clear(mainloop.o);
    if (rows.any()) {
      // The visible blocks of keys from the last one down.
      i32 block = rows.blocks.end - 1;
      mainloop.begin<kPartialBlocks>(rows, block);
      block = rows.before(block);
      if (kPartialBlocks)
        for (; block >= rows.blocks.unmasked_end; block = rows.before(block)) mainloop.step<true>(rows, block);
      for (; block >= rows.blocks.unmasked_begin; block = rows.before(block)) mainloop.step<false>(rows, block);
      mainloop.end();
    } else {
      mainloop.softmax.row_sum[0] = mainloop.softmax.row_sum[1] = 0;
      fence_proxy_async();  // no product waited for the loads of Q: the release must not overtake them
      bar_warp_sync();
    }
    skip_blocks(consumer, rows.unused_first_blocks);
    consumer.release_q();
    store_rows(args, QueryTile(args, opaque_i32(number)), rows.first_row, mainloop.o, mainloop.softmax);
  }
  if (index == 0) consumer.wait_order();
}

extern "C" __global__ void __launch_bounds__(kThreads, kCtasPerSm)
    attune_forward(const __grid_constant__ Arguments args) {
  const u32 shared = shared_base();
  const Barriers barriers{shared + kBarrierOffset};
  const u32 warp = warp_index();
  if (thread_index() == 0) {
    prefetch_tensormap(args.q_map);
    prefetch_tensormap(args.k_map);
    prefetch_tensormap(args.v_map);
    if (args.attention_mask_by_map) prefetch_tensormap(args.attention_mask_map);
    barriers.init();
  }
  bar_sync();
  if (warp < 4) {
    if (kProducerRegisters != 0) setmaxnreg_dec<kProducerRegisters>();
    if (thread_index() == 0) produce(args, barriers, shared);
    if (warp == 1) produce_pairs(args, barriers, shared);
  } else {
    if (kConsumerRegisters != 0) setmaxnreg_inc<kConsumerRegisters>();
    consume(args, barriers, shared, static_cast<i32>(warp / 4 - 1));
  }
}
static_assert(sizeof(Arguments) == kArgumentBytes, "the host packs the arguments as this compiler lays them out");

}  // namespace attune_c5d26362a30a9ef7
