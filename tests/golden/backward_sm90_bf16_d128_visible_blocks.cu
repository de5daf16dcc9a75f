// attune backward bf16 d128 attention-mask=bhqk sm90 q64 kv128 st2 overlap=queued pst2 visible-blocks dq=atomic dq-by=softmax · source 27e62d8d315c2cd6
//
// Attention backward on Hopper (wgmma, TMA, mbarriers) for one tile of keys of one key/value head. Keys are the rows of
// all products but dQ's:
//
//   for each query head of the group, for each block of queries:
//     Sᵀ = K Qᵀ        Pᵀ = exp2(c Sᵀ - LSE·log2(e)), masked     dV = dV + Pᵀ dO
//     dPᵀ = V dOᵀ      dSᵀ = Pᵀ ∘ (dPᵀ - delta)                  dK = dK + dSᵀ Q
//     dQᵀ = dQᵀ + Kᵀ dSᵀ, in fp32, to be scaled by another kernel
//   dK = scale·dK,   c = scale·log2(e)
//
// Pᵀ = exp2(c Sᵀ + log2(e)·(0 - LSE)); 0 where the attention mask is false.
//
// Blocks of queries are passed over where the attention mask shows them none of a tile's keys: another kernel has found
// them.
//
// Warpgroup 0 loads, with two of its warps, one Q and LSE, one dO and delta. Each of the others owns 64 keys: their S,
// P, dP, dS, dK and dV. All blocks of a tile are walked in step: dS of a block goes to all softmax warpgroups through
// shared memory. A block later each of them computes a part of that block's dQ, transposed, and adds it.
//
// shared memory, bytes; a panel holds kPanelColumns columns of all rows of its tile:
//        0  K   [1][2][128][64]
//    32768  V   [1][2][128][64]
//    65536  Q   [2][2][64][64]
//    98304  dO  [2][2][64][64]
//   131072  dS  [2][2][64][64]
//   163840  attention mask  [2][1][64][128]
//   180224  LSE  [2][64], fp32
//   180736  delta  [2][64], fp32
//   181248  barriers
//   181360  end

namespace attune_ab1e2a00315f50ce {

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

struct alignas(16) Vec4F32 { float x, y, z, w; };

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
__device__ __forceinline__ Vec4F32 ld_global_v4_f32(const float* from) {
  Vec4F32 r;
  asm volatile("ld.global.nc.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(r.x), "=f"(r.y), "=f"(r.z), "=f"(r.w) : "l"(from));
  return r;
}
__device__ __forceinline__ Vec4F32 ld_shared_v4_f32(u32 from) {
  Vec4F32 r;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(r.x), "=f"(r.y), "=f"(r.z), "=f"(r.w) : "r"(from)
      : "memory");
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
__device__ __forceinline__ float abs_f32(float x) { return fabsf(x); }

__device__ __forceinline__ float ex2_approx_ftz_f32(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

__device__ __forceinline__ u32 f32_to_bits(float x) { return __float_as_uint(x); }

// All threads of the CTA.
__device__ __forceinline__ void bar_sync() { asm volatile("bar.sync 0;" ::: "memory"); }

// All lanes of the warp; orders their accesses to shared memory.
__device__ __forceinline__ void bar_warp_sync() { __syncwarp(); }

// Compute capability 9.0 and newer; `to` is a multiple of 16 bytes.
__device__ __forceinline__ void red_global_add_v4_f32(float* to, Vec4F32 x) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x.x), "f"(x.y), "f"(x.z),
      "f"(x.w) : "memory");
}

// Programmatic dependent launch, compute capability 9.0 and newer: the launch that follows in the stream may begin, if
// it was made so, when each CTA has said the first or has ended; behind the second it sees all that this one wrote.
__device__ __forceinline__ void griddepcontrol_launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
__device__ __forceinline__ void griddepcontrol_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

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

// Copies bytes that follow each other to shared memory; they complete on `barrier`. Addresses and `bytes` are multiples
// of 16.
__device__ __forceinline__ void cp_async_bulk_load(u32 to, const void* from, u32 bytes, u32 barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               ::"r"(to), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}

__device__ __forceinline__ void prefetch_tensormap(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// The same, where the lanes give the elements of the transposed matrices.
__device__ __forceinline__ void stmatrix_x4_trans(u32 row, const u32 (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
               ::"r"(row), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
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
__device__ __forceinline__ void wgmma_ss(float (&d)[32], u64 a_descriptor, u64 b_descriptor) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, p, 1, 1, 0, %35;\n"
      "}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "l"(a_descriptor), "l"(b_descriptor), "n"(kAccumulate ? 1 : 0), "n"(kTransposed ? 1 : 0));
}
// wgmma with a from registers: its fragment is a[4 step], ... a[4 step + 3].
template <bool kAccumulate, bool kTransposed, i32 kFragments>
__device__ __forceinline__ void wgmma_rs(float (&d)[32], const u32 (&a)[kFragments], i32 step, u64 b_descriptor) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, "
      "%36, p, 1, 1, %38;\n"
      "}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "r"(a[4 * step]), "r"(a[4 * step + 1]), "r"(a[4 * step + 2]), "r"(a[4 * step + 3]), "l"(b_descriptor),
        "n"(kAccumulate ? 1 : 0),
        "n"(kTransposed ? 1 : 0));
}
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

// The first product of a sum, d = a b: d is an output alone, so that the compiler keeps nothing that it held before.
template <bool kTransposed>
__device__ __forceinline__ void wgmma_ss_first(float (&d)[32], u64 a_descriptor, u64 b_descriptor) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, 0, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, p, 1, 1, 0, %34;\n"
      "}"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3]), "=f"(d[4]), "=f"(d[5]), "=f"(d[6]), "=f"(d[7]),
        "=f"(d[8]), "=f"(d[9]), "=f"(d[10]), "=f"(d[11]), "=f"(d[12]), "=f"(d[13]), "=f"(d[14]), "=f"(d[15]),
        "=f"(d[16]), "=f"(d[17]), "=f"(d[18]), "=f"(d[19]), "=f"(d[20]), "=f"(d[21]), "=f"(d[22]), "=f"(d[23]),
        "=f"(d[24]), "=f"(d[25]), "=f"(d[26]), "=f"(d[27]), "=f"(d[28]), "=f"(d[29]), "=f"(d[30]), "=f"(d[31])
      : "l"(a_descriptor), "l"(b_descriptor), "n"(kTransposed ? 1 : 0));
}
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

// The same two with a MN-major, as b may be: rows of shared memory are k.
template <bool kAccumulate, bool kTransposed>
__device__ __forceinline__ void wgmma_ss_transposed_a(float (&d)[32], u64 a_descriptor, u64 b_descriptor) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, p, 1, 1, 1, %35;\n"
      "}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "l"(a_descriptor), "l"(b_descriptor), "n"(kAccumulate ? 1 : 0), "n"(kTransposed ? 1 : 0));
}
template <bool kTransposed>
__device__ __forceinline__ void wgmma_ss_transposed_a_first(float (&d)[32], u64 a_descriptor, u64 b_descriptor) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, 0, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, p, 1, 1, 1, %34;\n"
      "}"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3]), "=f"(d[4]), "=f"(d[5]), "=f"(d[6]), "=f"(d[7]),
        "=f"(d[8]), "=f"(d[9]), "=f"(d[10]), "=f"(d[11]), "=f"(d[12]), "=f"(d[13]), "=f"(d[14]), "=f"(d[15]),
        "=f"(d[16]), "=f"(d[17]), "=f"(d[18]), "=f"(d[19]), "=f"(d[20]), "=f"(d[21]), "=f"(d[22]), "=f"(d[23]),
        "=f"(d[24]), "=f"(d[25]), "=f"(d[26]), "=f"(d[27]), "=f"(d[28]), "=f"(d[29]), "=f"(d[30]), "=f"(d[31])
      : "l"(a_descriptor), "l"(b_descriptor), "n"(kTransposed ? 1 : 0));
}
template <bool kAccumulate, bool kTransposed>
__device__ __forceinline__ void wgmma_ss_transposed_a(float (&d)[64], u64 a_descriptor, u64 b_descriptor) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, p, 1, 1, 1, %67;\n"
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
template <bool kTransposed>
__device__ __forceinline__ void wgmma_ss_transposed_a_first(float (&d)[64], u64 a_descriptor, u64 b_descriptor) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, 0, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, p, 1, 1, 1, %66;\n"
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
  float* d_q_sums;
  void* d_k;
  void* d_v;
  i64 d_k_stride_batch;
  i64 d_k_stride_head;
  i64 d_k_stride_row;
  i64 d_v_stride_batch;
  i64 d_v_stride_head;
  i64 d_v_stride_row;
  i32 heads_q;
  i32 group_size;
  i32 seq_q;
  i32 seq_kv;
  i32 key_tiles;
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
constexpr u32 kArgumentBytes = 896;

constexpr i32 kHeadDimQk = 128, kHeadDimV = 128;  // elements of a row of Q and K, and of V and O
constexpr i32 kElementBytes = 2;
constexpr i32 kBlockQ = 64, kBlockKv = 128, kSoftmaxWarpgroups = 2;
constexpr i32 kStages = 2, kDoStages = 2, kDsStages = 2;  // tiles of Q, of dO, of dS
constexpr bool kOrderedWarpgroups = false;  // whether they issue S and dP in a fixed order
constexpr i32 kProducerRegisters = 24, kSoftmaxRegisters = 240;  // 0: as they are at launch
constexpr i32 kCtasPerSm = 1, kCluster = 1;  // CTAs

constexpr i32 kWarpgroup = 128, kWarpgroupWarps = 4;  // threads, warps
constexpr i32 kWarpgroupKeys = 64, kWarpgroupsOfKeys = 1;  // rows of a wgmma; softmax warpgroups that share them
constexpr i32 kThreads = (kSoftmaxWarpgroups + 1) * kWarpgroup;
constexpr i32 kPanelColumns = 64, kPanels = 2;
constexpr u32 kPanelBytes = kElementBytes * kPanelColumns;  // of a row
constexpr u32 kQPanelStride = kBlockQ * kPanelBytes, kKvPanelStride = kBlockKv * kPanelBytes;
constexpr u32 kQTileBytes = kPanels * kQPanelStride, kKvTileBytes = kPanels * kKvPanelStride;
// the latter: LSE of a block, or delta
constexpr u32 kDsTileBytes = kElementBytes * kBlockQ * kBlockKv, kRowsBytes = 4 * kBlockQ;
constexpr u32 kKOffset = 0;
constexpr u32 kVOffset = 32768;
constexpr u32 kQOffset = 65536;
constexpr u32 kDoOffset = 98304;
constexpr u32 kDsOffset = 131072;
constexpr u32 kAttentionMaskOffset = 163840;
constexpr u32 kLseOffset = 180224;
constexpr u32 kDeltaOffset = 180736;
constexpr u32 kBarrierOffset = 181248;
constexpr i32 kChunks = kHeadDimQk / 8;                 // 16-byte chunks of a row
constexpr i32 kDimSteps = (kHeadDimQk + 15) / 16;       // k16 steps over the head dim; columns beyond it are zeros
// the same over a block of queries, a tile of keys
constexpr i32 kQuerySteps = kBlockQ / 16, kKeySteps = kBlockKv / 16;
static_assert(kHeadDimQk == kHeadDimV);  // rows of all tiles, and dK and dV, lie alike
static_assert(kBlockQ % 16 == 0 && kBlockKv % kWarpgroupKeys == 0 && kHeadDimQk % 8 == 0 &&
    kPanels * kPanelColumns >= 16 * kDimSteps);

// A thread's accumulators: element 4 n + i lies in row lane / 4 + 8 (i / 2) of its warp's 16 rows, in column 8 n + 2
// (lane % 4) + i % 2.
using ScoreFragments = float[kBlockQ / 2];        // of Sᵀ or dPᵀ
// of Pᵀ or dSᵀ in 16 bits: the A operand of a product over the queries
using PackedScores = u32[kBlockQ / 4];
using GradientFragments = float[kHeadDimV / 2];    // of dK or dV

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

// Where a role stands in what comes once a tile: K and V. It has come when the phase of this parity of its full barrier
// has completed.
struct TileSlot {
  u32 tiles = 0;  // before this one

  __device__ __forceinline__ u32 parity() const { return tiles % 2; }
  __device__ __forceinline__ void advance() { ++tiles; }
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

// Workspaces hold whole blocks of rows: so many of each head, one batch entry after the other; a sequence's begin with
// those of its head.
__device__ __forceinline__ i32 workspace_batch(const Sequence& sequence) { return sequence.batch; }
template <i32 kRows>
__device__ __forceinline__ i32 first_block_of_queries(const Sequence&) {
  return 0;
}
// Every query of a sequence attends to every key.
__device__ __forceinline__ i32 last_key(const Arguments& args, const Sequence& sequence, i32 /*query*/) {
  return key_count(args, sequence) - 1;
}
__device__ __forceinline__ i32 first_query(const Arguments&, const Sequence&, i32 /*key*/) { return 0; }

// The queries that do not attend to a key, by their distance from a query. Nobody attends to a key that does not exist.
struct HiddenQueries {
  i32 first;  // that attends to the key

  __device__ __forceinline__ HiddenQueries(const Arguments& args, const Sequence& sequence, i32 key, i32 from) {
    const bool exists = key < key_count(args, sequence);
    first = (exists ? first_query(args, sequence, key) : query_count(args, sequence)) - from;
  }
  __device__ __forceinline__ bool has(i32 distance) const { return distance < first; }
};

// The blocks of queries [begin, end) that attend to some of the keys from first_key on. Those of [unmasked_begin,
// unmasked_end) attend to all of these keys. Either range may be empty. With kMaskRagged, no block counts as unmasked
// where the keys do not fill their tile.
template <bool kMaskRagged>
struct QueryBlocks {
  i32 begin, unmasked_begin, end, all;  // what attends to a key ends with the last query: end and all are the same

  __device__ __forceinline__ QueryBlocks(const Arguments& args, const Sequence& sequence, i32 first_key, i32 keys) {
    const i32 last_key = first_key + keys - 1;
    all = (query_count(args, sequence) + kBlockQ - 1) / kBlockQ;
    const i32 existing = all;
    end = existing;
    const i32 first = first_query(args, sequence, first_key), first_of_last = first_query(args, sequence, last_key);
    begin = first < query_count(args, sequence) ? first / kBlockQ : end;
    unmasked_begin = kMaskRagged && keys < kWarpgroupKeys ? end : (first_of_last + kBlockQ - 1) / kBlockQ;
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
static_assert(kBarrierOffset >= kAttentionMaskOffset + 2 * AttentionMaskPanels::kTileBytes);
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
// A gradient's sums of 16 rows and 8 columns, as the accumulators of a warp hold it: the four of a lane lie together,
// for one add of 16 bytes.
__device__ __forceinline__ void add_sums(float* sums, const float (&acc)[4]) {
  red_global_add_v4_f32(sums + 4 * lane_index(), Vec4F32{acc[0], acc[1], acc[2], acc[3]});
}
__device__ __forceinline__ Vec4F32 load_sums(const float* sums) { return ld_global_v4_f32(sums + 4 * lane_index()); }
constexpr i32 kSumsOfFragment = 16 * 8;  // floats

// The place of the sums of a fragment: 16 rows from `row` on, and the columns of a chunk. head counts as workspaces
// have them, and has `padded` rows, whole tiles.
__device__ __forceinline__ i64 sums_place(i64 head, i32 padded, i32 row, i32 chunk) {
  return ((head * padded + row) / 16 * kChunks + chunk) * kSumsOfFragment;
}
// The place of the sums of a block of rows, where fragments are transposed: 16 of the head dim and 8 rows. head counts
// as workspaces have them, and has `blocks` blocks.
template <i32 kTileRows>
__device__ __forceinline__ i64 transposed_sums_place(i64 head, i32 blocks, i32 block) {
  return (head * blocks + block) * (kHeadDimQk * kTileRows);
}
// The place of a fragment among those of its block: of each 16 of the head dim all rows follow each other.
template <i32 kTileRows>
__device__ __forceinline__ i32 transposed_fragment_place(i32 sixteen_dims, i32 eight_rows) {
  return (sixteen_dims * (kTileRows / 8) + eight_rows) * kSumsOfFragment;
}

// Every key/value head has tiles of keys of its own. A CTA walks through the query heads that share them.
struct TileHeads {
  // of a batch entry
  __device__ __forceinline__ static i32 count(const Arguments& args) { return args.heads_q / args.group_size; }
  __device__ __forceinline__ static i32 of_keys(const Arguments&, i32 head) { return head; }
  __device__ __forceinline__ static i32 of_queries(const Arguments& args, i32 head, i32 member) {
    return head * args.group_size + member;
  }
  __device__ __forceinline__ static i32 walked(const Arguments& args) { return args.group_size; }
};
// CTAs take tiles in the order of their numbers.
__device__ __forceinline__ i32 take_tile_id(const Arguments&, u32 /*shared*/) {
  return static_cast<i32>(block_index());
}
// CTAs take all tiles of a head, then those of the next.
__device__ __forceinline__ i32 tile_in_order(const Arguments&, i32 number) { return number; }

struct KeyTile {
  Sequence sequence;
  i32 tile, head, first_key, keys;  // head: with tiles of its own, as TileHeads says

  // index: among the tiles of all heads, all tiles of a head, then those of the next.
  __device__ __forceinline__ KeyTile(const Arguments& args, i32 index) {
    tile = index % args.key_tiles;
    const i32 head_of_all = index / args.key_tiles, heads = TileHeads::count(args);
    sequence = Sequence(args, head_of_all / heads);
    head = head_of_all - sequence.batch * heads;
    first_key = tile * kBlockKv;
    keys = key_count(args, sequence) - first_key < kBlockKv ? key_count(args, sequence) - first_key : kBlockKv;
  }
  // Rows of dK and dV that belong to the tile.
  __device__ __forceinline__ i32 rows(const Arguments&) const { return keys; }
};

// The blocks that a tile walks through: those of which the attention mask shows a pair, a bit each, which
// kernels/visible_blocks has left.
struct VisibleBlocks {
  const i32* words;

  VisibleBlocks() = default;
  // tile: among the tiles of keys of a head.
  __device__ __forceinline__ VisibleBlocks(const Arguments& args, const Sequence& sequence, i32 head, i32 tile) {
    const i32 batch_of_mask = args.attention_mask_batch == 1 ? 0 : sequence.batch,
        head_of_mask = args.attention_mask_heads == 1 ? 0 : head;
    const i64 of_head = static_cast<i64>(batch_of_mask) * args.attention_mask_heads + head_of_mask;
    words = args.visible_blocks +
        (of_head * args.key_tiles + tile) * ((args.seq_q + 32 * kBlockQ - 1) / (32 * kBlockQ));
  }
  // The first one from `block` on, or `end`.
  __device__ __forceinline__ i32 from(i32 block, i32 end) const {
    while (block < end) {
      const u32 bits = static_cast<u32>(ld_global_i32(words + block / 32)) >> block % 32 << block % 32;
      if (bits != 0) {
        const i32 found = block / 32 * 32 + static_cast<i32>(bfind_b32(bits & (0u - bits)));
        return found < end ? found : end;
      }
      block = (block / 32 + 1) * 32;
    }
    return end;
  }
};

// Named barriers: of warpgroup 0; one for each softmax warpgroup, from kOrder on; others follow.
constexpr u32 kTickets = 1, kOrder = kTickets + 1;

// The barriers. A full one completes when its buffer has been filled, by TMA or by every warp of those that fill it; an
// empty one when every warp of those that read the buffer has left it.
struct Barriers {
  u32 base;
  __device__ __forceinline__ u32 q_full(i32 stage) const { return base + 0 + 8 * stage; }
  __device__ __forceinline__ u32 q_empty(i32 stage) const { return base + 16 + 8 * stage; }
  __device__ __forceinline__ u32 d_o_full(i32 stage) const { return base + 32 + 8 * stage; }
  __device__ __forceinline__ u32 d_o_empty(i32 stage) const { return base + 48 + 8 * stage; }
  __device__ __forceinline__ u32 ds_full(i32 stage) const { return base + 64 + 8 * stage; }
  __device__ __forceinline__ u32 ds_empty(i32 stage) const { return base + 80 + 8 * stage; }
  __device__ __forceinline__ u32 k_full() const { return base + 96; }
  __device__ __forceinline__ u32 v_full() const { return base + 104; }

  __device__ __forceinline__ void init() const {
    for (i32 i = 0; i < 2; ++i) {
      mbarrier_init(q_full(i), 1);
      mbarrier_init(q_empty(i), 8);
    }
    for (i32 i = 0; i < 2; ++i) {
      mbarrier_init(d_o_full(i), 1);
      mbarrier_init(d_o_empty(i), 8);
    }
    for (i32 i = 0; i < 2; ++i) {
      mbarrier_init(ds_full(i), 8);
      mbarrier_init(ds_empty(i), 8);
    }
    mbarrier_init(k_full(), 1);
    mbarrier_init(v_full(), 1);
    fence_mbarrier_init();
  }
};

// A CTA takes one tile of keys; the CTAs of a cluster take neighbouring ones.
struct KeyTilesOfCta {
  i32 number;

  __device__ __forceinline__ KeyTilesOfCta(const Arguments& args, const Barriers&, u32 shared)
      : number(take_tile_id(args, shared) / kCluster) {}
  // Calls work with the index of each tile.
  template <class Work>
  __device__ __forceinline__ void for_each(const Arguments& args, TileSlot, const Work& work) const {
    work(tile_in_order(args, number));
  }
};

__device__ __forceinline__ i32 uniform(i32 x) { return static_cast<i32>(redux_sync_or_b32(static_cast<u32>(x))); }

// The blocks of queries that a tile's CTA walks through, for each of its query heads: those that attend to any of its
// keys.
struct QueryWalk {
  QueryBlocks<true> blocks;
  VisibleBlocks visible;  // of these

  __device__ __forceinline__ QueryWalk(const Arguments& args, const KeyTile& tile)
      : blocks(args, tile.sequence, tile.first_key, tile.keys) {
    visible = VisibleBlocks(args, tile.sequence, TileHeads::of_queries(args, tile.head, 0), tile.tile);
    blocks.begin = uniform(visible.from(blocks.begin, blocks.end));
  }
  // The one after a block, or where they end: for a whole warp, whose lanes then know that they have the same number.
  __device__ __forceinline__ i32 after(i32 block) const { return uniform(visible.from(block + 1, blocks.end)); }
  __device__ __forceinline__ bool any() const { return blocks.begin < blocks.end; }
};

// Copies a tile panel by panel; all of it completes on `full`.
template <u32 kPanelStride>
__device__ __forceinline__ void load_tile(u32 to, const TensorMap& map, u32 full, i32 head, MapPlace place) {
  mbarrier_arrive_expect_tx(full, kPanels * kPanelStride);
#pragma unroll
  for (i32 panel = 0; panel < kPanels; ++panel)
    load_box(to + panel * kPanelStride, map, full, panel * kPanelColumns, head, place);
}
// Copies a block of queries into a buffer that is free: Q and LSE, with tiles of pairs, or dO and delta. blocks: of a
// head in workspaces.
__device__ __forceinline__ void copy_block(const Arguments& args, const Barriers& barriers, u32 shared, bool of_do,
    i32 stage, const Sequence& sequence, i32 query_head, i32 block, i32 blocks, i32 first_key) {
  const u32 full = of_do ? barriers.d_o_full(stage) : barriers.q_full(stage);
  u32 pair_bytes = 0;
  if (!of_do && args.attention_mask_by_map) pair_bytes += AttentionMaskPanels::kTileBytes;
  mbarrier_arrive_expect_tx(full, kQTileBytes + kRowsBytes + pair_bytes);
  const u32 to = shared + (of_do ? kDoOffset : kQOffset) + stage * kQTileBytes;
  const TensorMap& map = of_do ? args.d_o_map : args.q_map;
  const MapPlace place = place_of_queries(args, sequence, block * kBlockQ);
#pragma unroll
  for (i32 panel = 0; panel < kPanels; ++panel)
    load_box(to + panel * kQPanelStride, map, full, panel * kPanelColumns, query_head, place);
  const i64 of_all = static_cast<i64>(workspace_batch(sequence) * args.heads_q + query_head) * blocks +
      first_block_of_queries<kBlockQ>(sequence) + block;
  cp_async_bulk_load(shared + (of_do ? kDeltaOffset : kLseOffset) + stage * kRowsBytes,
      args.statistics + (2 * of_all + of_do) * kBlockQ, kRowsBytes, full);
  if (!of_do && args.attention_mask_by_map)
    copy_attention_mask(args, attention_mask_tile(shared, stage), full, sequence.batch, query_head, block * kBlockQ,
        first_key);
}

// Copies the blocks of queries that a tile's CTA walks through: one warp those of Q, each with LSE, another those of
// dO, each with delta. Both run the same code: a thread's registers are those of all roles of its warpgroup.
struct QueryLoads {
  bool of_do;  // what this warp copies
  i32 stage = 0;
  u32 parity = 0;
  i32 head, block;  // the next one of the tile; head: of those walked

  __device__ __forceinline__ explicit QueryLoads(bool of_do) : of_do(of_do) {}
  __device__ __forceinline__ void begin(const QueryWalk& walk) {
    head = 0;
    block = walk.blocks.begin;
  }

  __device__ __forceinline__ i32 stages() const { return of_do ? kDoStages : kStages; }

  __device__ __forceinline__ bool any(const Arguments& args) const { return head < TileHeads::walked(args); }
  // Waits for the buffer of the next block, if there is one, and fills it.
  __device__ __forceinline__ void next(const Arguments& args, const Barriers& barriers, const KeyTile& tile,
      const QueryWalk& walk, u32 shared) {
    if (head == TileHeads::walked(args)) return;
    if (lane_index() == 0) {
      mbarrier_wait_parity(empty(barriers), parity ^ 1);
      fill(args, barriers, tile, walk, shared);
    }
    advance(walk);
  }

 private:
  __device__ __forceinline__ u32 empty(const Barriers& barriers) const {
    return of_do ? barriers.d_o_empty(stage) : barriers.q_empty(stage);
  }
  __device__ __forceinline__ void fill(const Arguments& args, const Barriers& barriers, const KeyTile& tile,
      const QueryWalk& walk, u32 shared) const {
    copy_block(args, barriers, shared, of_do, stage, tile.sequence, TileHeads::of_queries(args, tile.head, head), block,
        walk.blocks.all, tile.first_key);
  }
  __device__ __forceinline__ void advance(const QueryWalk& walk) {
    if (++stage == stages()) {
      stage = 0;
      parity ^= 1;
    }
    block = walk.visible.from(block + 1, walk.blocks.end);
    if (block == walk.blocks.end) {
      block = walk.blocks.begin;
      ++head;
    }
  }
};

// Where the warpgroup that loads stands in the rings, from tile to tile.
struct QueryProducer {
  i32 warp;
  QueryLoads queries;
  TileSlot slot;

  __device__ __forceinline__ explicit QueryProducer(i32 warp) : warp(warp), queries(warp == 2) {}
};

// All loads of a tile: one warp's of K, Q and LSE, another one's of V, dO and delta. Each buffer is filled anew when
// every softmax warpgroup has left it.
__device__ __forceinline__ void load_operands(const Arguments& args, const Barriers& barriers, u32 shared, i32 index,
    QueryProducer& producer) {
  const KeyTile tile(args, index);
  const QueryWalk walk(args, tile);
  if (!walk.any()) {
    griddepcontrol_wait();  // a launch ends no earlier than the one before it
    return;
  }
  QueryLoads& queries = producer.queries;
  if (producer.warp == 1 || producer.warp == 2) {
    const i32 head_kv = TileHeads::of_keys(args, tile.head);
    if (lane_index() == 0) {
      load_tile<kKvPanelStride>(shared + (queries.of_do ? kVOffset : kKOffset), queries.of_do ? args.v_map : args.k_map,
          queries.of_do ? barriers.v_full()
          : barriers.k_full(), head_kv, place_of_keys(args, tile.sequence, tile.tile));
    }
    griddepcontrol_wait();  // the statistics are another kernel's
    queries.begin(walk);
#pragma unroll 1
    while (queries.any(args)) queries.next(args, barriers, tile, walk, shared);
  }
}
// LSE or delta of a lane's columns among sixteen, from the statistics of a block.
__device__ __forceinline__ Vec4F32 load_columns(u32 rows, i32 sixteen) {
  return ld_shared_v4_f32(rows + 64 * sixteen + lane_index() % 4 * 16);
}
__device__ __forceinline__ float column_of(const Vec4F32& columns, i32 i) {
  return i & 4 ? (i & 1 ? columns.w : columns.z) : (i & 1 ? columns.y : columns.x);
}

// What the tensors of pairs hold for a thread's two keys and sixteen queries, step after step, from tiles whose rows
// are queries. Element i is that of its score 8·step + i.
struct PairElements {
  u32 attention_mask_places[4], attention_mask_step;  // where the words with its first four elements lie
  u32 attention_mask_elements[8];

  // first_key: of the warp, in the tile.
  __device__ __forceinline__ PairElements(const Arguments& args, u32 shared, i32 stage, i32 first_key) {
    const i32 lane = static_cast<i32>(lane_index());
#pragma unroll
    for (i32 i = 0; i < 4; ++i) {
      const i32 query = lane % 4 * 2 + i % 2, key = first_key + lane / 4 + i / 2 * 8;
      attention_mask_places[i] =
          AttentionMaskPanels::at(AttentionMaskPanels::row(attention_mask_tile(shared, stage),
          row_of_attention_mask(args, query)), key / 4 * 4);
    }
    attention_mask_step = row_of_attention_mask(args, 8) * AttentionMaskPanels::kRowBytes;
  }
  __device__ __forceinline__ void read(i32 step) {
#pragma unroll
    for (i32 i = 0; i < 8; ++i) {
      attention_mask_elements[i] =
          ld_shared_b32(attention_mask_places[i % 4] + (2 * step + i / 4) * attention_mask_step) >> lane_index() /
          4 % 4 * 8;
    }
  }
  __device__ __forceinline__ bool attends(i32 i) const { return (attention_mask_elements[i] & 0xff) != 0; }
};

// What does not come by tensor map: the part of the warp's keys of a tile. query, first_key: its first ones, in the
// sequence; key: the warp's first, in the tile.
__device__ __forceinline__ void load_pairs(const Arguments& args, const Sequence& sequence, u32 shared, i32 stage,
    i32 head, i32 query, i32 first_key, i32 key) {
  const i32 last = last_of(key_count(args, sequence));
  if (!args.attention_mask_by_map)
    AttentionMaskPanels::load<kBlockQ, 16>(attention_mask_tile(shared, stage), 0, key, first_key, last,
        [&](i32 i) { return attention_mask_of_query(args, sequence, head, query + i); });
}

// What the exponents of a thread's two keys and a block's queries gain by tensors of pairs. What these hold may be
// anything for a pair that the attention mask hides and, where kMasked, for one whose score is -inf or whose query sees
// nothing or does not exist.
template <bool kMasked>
struct TermsOfPairs {
  PairElements pairs;

  __device__ __forceinline__ void read(i32 step) { pairs.read(step); }
  __device__ __forceinline__ float exponent(float score, float scale_log2, float lse, i32 /*from*/, i32 i) const {
    const bool counts = (!kMasked || (score != negative_infinity() && lse != -negative_infinity())) && pairs.attends(i);
    return counts ? fma_rn_f32(score, scale_log2, -lse) : negative_infinity();
  }
};
// Turns Sᵀ into Pᵀ. An exponent is positive only by what rounding left of LSE: it counts as negative, so that P does
// not exceed 1.
template <class Terms>
__device__ __forceinline__ void exponentiate(ScoreFragments& s, float scale_log2, u32 lse, Terms terms) {
#pragma unroll
  for (i32 k = 0; k < kQuerySteps; ++k) {
    const Vec4F32 columns = load_columns(lse, k);
    terms.read(k);
#pragma unroll
    for (i32 i = 0; i < 8; ++i)
      s[8 * k + i] =
          ex2_approx_ftz_f32(-abs_f32(terms.exponent(s[8 * k + i], scale_log2, column_of(columns, i), 16 * k, i)));
  }
}

// Scores in 16 bits.
__device__ __forceinline__ void pack_scores(PackedScores& packed, const ScoreFragments& scores) {
#pragma unroll
  for (i32 i = 0; i < kBlockQ / 4; ++i) packed[i] = pack_elements(scores[2 * i], scores[2 * i + 1]);
}

// Turns dPᵀ into dSᵀ = Pᵀ ∘ (dPᵀ - delta). Downwards: in 16 bits dSᵀ can take the upper half of dPᵀ's registers, so
// that the next scores fit below it.
__device__ __forceinline__ void differentiate(ScoreFragments& dp, const PackedScores& p, u32 delta) {
#pragma unroll
  for (i32 k = kQuerySteps - 1; k >= 0; --k) {
    const Vec4F32 columns = load_columns(delta, k);
#pragma unroll
    for (i32 i = 0; i < 4; ++i) {
      const u32 pair = p[4 * k + i];
      float &low = dp[8 * k + 2 * i], &high = dp[8 * k + 2 * i + 1];
      low = cvt_f32_low_bf16(pair) * (low - column_of(columns, 2 * i));
      high = cvt_f32_high_bf16(pair) * (high - column_of(columns, 2 * i + 1));
    }
  }
}

// Sets the scores of queries that do not attend to a key to -inf. first_key: of this thread; first_query: of the block.
__device__ __forceinline__ void mask_scores(ScoreFragments& s, const Arguments& args, const Sequence& sequence,
    i32 first_key, i32 first_query) {
#pragma unroll
  for (i32 half = 0; half < 2; ++half) {
    const HiddenQueries hidden(args, sequence, first_key + 8 * half,
        first_query + static_cast<i32>(lane_index() % 4 * 2));
#pragma unroll
    for (i32 n = 0; n < kBlockQ / 8; ++n) {
#pragma unroll
      for (i32 e = 0; e < 2; ++e)
        if (hidden.has(8 * n + e)) s[4 * n + 2 * half + e] = negative_infinity();
    }
  }
}

// Where a lane puts a warp's part of dSᵀ, 16 keys from column `key` of the tile on, in a tile of dS, whose rows are
// queries: fragments are transposed.
__device__ __forceinline__ u32 place_of_scores(u32 tile, i32 key) {
  const u32 lane = lane_index(), byte = kElementBytes * (key + lane / 8 % 2 * 8);
  return swizzled(tile + byte / kPanelBytes * kQPanelStride + (lane / 16 * 8 + lane % 8) * kPanelBytes +
      byte % kPanelBytes);
}
__device__ __forceinline__ void put_scores(u32 tile, i32 key, const PackedScores& ds) {
  const u32 at = place_of_scores(tile, key);
#pragma unroll
  for (i32 k = 0; k < kQuerySteps; ++k) {
    const u32 words[4] = {ds[4 * k], ds[4 * k + 1], ds[4 * k + 2], ds[4 * k + 3]};
    stmatrix_x4_trans(at + k * 16 * kPanelBytes, words);
  }
}
// dK and dV of a tile leave as they are: no other tile has these keys.
__device__ __forceinline__ void await_key_sums(const Arguments&, const KeyTile&) {}
__device__ __forceinline__ void pass_key_sums(const Arguments&, const KeyTile&) {}

// Stores a gradient of this thread's two keys, `key` and the eighth after it. The lanes of a quad exchange words of
// four fragments, so that each lane stores 16 bytes of a row.
__device__ __forceinline__ void store_rows(char* gradient, i64 row_bytes, float scale, i32 key, i32 keys,
    const GradientFragments& acc) {
  const u32 quad = lane_index() % 4;
#pragma unroll
  for (i32 half = 0; half < 2; ++half) {
    const i32 row = key + 8 * half;
    const bool exists = row < keys;
    char* const to = gradient + row * row_bytes;
#pragma unroll
    for (i32 group = 0; group < kHeadDimV / 32; ++group) {
      u32 words[4];
#pragma unroll
      for (i32 n = 0; n < 4; ++n)
        words[n] = pack_elements(scale * acc[16 * group + 4 * n + 2 * half],
            scale * acc[16 * group + 4 * n + 2 * half + 1]);
      transpose_in_quad(words);
      if (exists) st_global_v4_b32(to + 64 * group + 16 * quad, {words[0], words[1], words[2], words[3]});
    }
#pragma unroll
    for (i32 n = kHeadDimV / 32 * 4; n < kHeadDimV / 8; ++n)
      if (exists)
        st_global_b32(to + 16 * n + 4 * quad,
            pack_elements(scale * acc[4 * n + 2 * half], scale * acc[4 * n + 2 * half + 1]));
  }
}

// first_key: of the warp's 16, in the tile.
__device__ __forceinline__ void store_dk(const Arguments& args, const KeyTile& tile, i32 first_key,
    const GradientFragments& dk) {
  char* const d_k = static_cast<char*>(args.d_k) +
      kElementBytes * (tile.sequence.key_offset(args.d_k_stride_batch, args.d_k_stride_row) +
                                                        tile.head * args.d_k_stride_head +
                                                            tile.first_key * args.d_k_stride_row);
  store_rows(d_k, kElementBytes * args.d_k_stride_row, args.softmax_scale,
      first_key + static_cast<i32>(lane_index() / 4), tile.rows(args), dk);
}
__device__ __forceinline__ void store_dv(const Arguments& args, const KeyTile& tile, i32 first_key,
    const GradientFragments& dv) {
  char* const d_v = static_cast<char*>(args.d_v) +
      kElementBytes * (tile.sequence.key_offset(args.d_v_stride_batch, args.d_v_stride_row) +
                                                        tile.head * args.d_v_stride_head +
                                                            tile.first_key * args.d_v_stride_row);
  store_rows(d_v, kElementBytes * args.d_v_stride_row, 1.0f, first_key + static_cast<i32>(lane_index() / 4),
      tile.rows(args), dv);
}

// The blocks of queries that attend to any of a warpgroup's 64 keys. Others of the tile's walk are dead for it: they
// attend to other keys.
struct LiveBlocks {
  i32 begin, unmasked_begin, unmasked_end, end;

  __device__ __forceinline__ LiveBlocks(const Arguments& args, const KeyTile& tile, const QueryWalk& walk,
      i32 first_key) {
    const i32 keys = tile.first_key + tile.keys - first_key;
    begin = end = walk.blocks.end;
    if (keys <= 0) return;
    const QueryBlocks<true> blocks(args, tile.sequence, first_key, keys < kWarpgroupKeys ? keys : kWarpgroupKeys);
    if (blocks.begin >= blocks.end) return;
    begin = blocks.begin;
    unmasked_begin = blocks.unmasked_begin;
    unmasked_end = blocks.end;
    end = blocks.end;
    // What tensors of pairs hold for queries that do not exist may be anything.
    const i32 whole = query_count(args, tile.sequence) / kBlockQ;
    if (unmasked_end > whole) unmasked_end = whole;
  }
  __device__ __forceinline__ bool masked(i32 block) const { return block < unmasked_begin || block >= unmasked_end; }
};

// Where a softmax warpgroup stands in the rings, and its products. Its rows are 64 keys.
struct SoftmaxWarpgroup {
  Barriers barriers;
  u32 shared;
  i32 index;         // among the softmax warpgroups
  i32 first_key;     // of its 64, in the tile
  PipelineSlot<kStages> q;
  PipelineSlot<kDoStages> d_o;
  PipelineSlot<kDsStages> ds;
  TileSlot slot;

  __device__ __forceinline__ SoftmaxWarpgroup(const Barriers& barriers, u32 shared, i32 index)
      : barriers(barriers), shared(shared), index(index), first_key(index / kWarpgroupsOfKeys * kWarpgroupKeys) {}

  __device__ __forceinline__ i32 first_key_of_warp() const {
    return first_key + static_cast<i32>(warp_index() % kWarpgroupWarps * 16);
  }
  __device__ __forceinline__ i32 first_key_of_thread() const {
    return first_key + static_cast<i32>(warp_index() % kWarpgroupWarps * 16 + lane_index() / 4);
  }

  __device__ __forceinline__ void wait_k() const { mbarrier_wait_parity(barriers.k_full(), slot.parity()); }
  __device__ __forceinline__ void wait_v() const { mbarrier_wait_parity(barriers.v_full(), slot.parity()); }
  __device__ __forceinline__ void wait_q() const { mbarrier_wait_parity(barriers.q_full(q.stage), q.parity); }
  __device__ __forceinline__ void wait_do() const { mbarrier_wait_parity(barriers.d_o_full(d_o.stage), d_o.parity); }
  __device__ __forceinline__ void release_q(i32 stage) const {
    if (lane_index() == 0) mbarrier_arrive(barriers.q_empty(stage));
  }
  __device__ __forceinline__ void release_do() {
    if (lane_index() == 0) mbarrier_arrive(barriers.d_o_empty(d_o.stage));
    d_o.advance();
  }
  __device__ __forceinline__ u32 lse() const { return shared + kLseOffset + q.stage * kRowsBytes; }
  __device__ __forceinline__ u32 delta() const { return shared + kDeltaOffset + d_o.stage * kRowsBytes; }

  // Where warpgroups are ordered, each issues S and then dP when its predecessor has. The last one gives the first its
  // first turn, which the first one takes back in the end; not at each of several tiles, since the last one may then
  // come twice while the first is still on its way.
  __device__ __forceinline__ void begin_order() const {
    if (index == kSoftmaxWarpgroups - 1) pass_order();
  }
  __device__ __forceinline__ void end_order() const {
    if (index == 0) wait_order();
  }
  __device__ __forceinline__ void wait_order() const {
    if (kOrderedWarpgroups) bar_sync_named(kOrder + index, 2 * kWarpgroup);
  }
  __device__ __forceinline__ void pass_order() const {
    if (kOrderedWarpgroups)
      bar_arrive_named(kOrder + (index + 1 == kSoftmaxWarpgroups ? 0 : index + 1), 2 * kWarpgroup);
  }

  // Sᵀ = K Qᵀ
  __device__ __forceinline__ void issue_s(ScoreFragments& s) const {
    issue_scores(s, kKOffset, shared + kQOffset + q.stage * kQTileBytes);
  }
  // dPᵀ = V dOᵀ
  __device__ __forceinline__ void issue_dp(ScoreFragments& dp) const {
    issue_scores(dp, kVOffset, shared + kDoOffset + d_o.stage * kQTileBytes);
  }
  // dV += Pᵀ dO
  __device__ __forceinline__ void issue_dv(GradientFragments& dv, const PackedScores& p) const {
    issue_gradient(dv, p, shared + kDoOffset + d_o.stage * kQTileBytes);
  }
  // dK += dSᵀ Q
  __device__ __forceinline__ void issue_dk(GradientFragments& dk, const PackedScores& ds_of_block, i32 stage) const {
    issue_gradient(dk, ds_of_block, shared + kQOffset + stage * kQTileBytes);
  }

  // Until the buffer of the block's dS is free.
  __device__ __forceinline__ void wait_ds() const { mbarrier_wait_parity(barriers.ds_empty(ds.stage), ds.parity ^ 1); }
  // Hands dSᵀ of a block to all softmax warpgroups.
  __device__ __forceinline__ void publish(const PackedScores& ds_of_block) {
    wait_ds();
    put_scores(shared + kDsOffset + ds.stage * kDsTileBytes, first_key_of_warp(), ds_of_block);
    fence_proxy_async();
    bar_warp_sync();
    if (lane_index() == 0) mbarrier_arrive(barriers.ds_full(ds.stage));
    ds.advance();
  }

 private:
  // Keys (of K or V) times queries (of Q or dO) over the head dim.
  __device__ __forceinline__ void issue_scores(ScoreFragments& scores, u32 kv_offset, u32 tile) const {
    const u32 place = tile_place(shared + kv_offset + first_key * kPanelBytes, kKvPanelStride),
        columns = tile_place(tile, kQPanelStride);
    // Descriptors of many steps would be kept from block to block, beyond what uniform registers hold: each would come
    // from a lane's.
    const u32 rows = kDimSteps > 4 ? static_cast<u32>(opaque_i32(static_cast<i32>(place))) : place;
    wgmma_fence();
    wgmma_ss_first<false>(scores, matrix_descriptor(rows), matrix_descriptor(columns));
#pragma unroll
    for (i32 step = 1; step < kDimSteps; ++step)
      wgmma_ss<true, false>(scores, matrix_descriptor(rows + column_step(step, kKvPanelStride)),
          matrix_descriptor(columns + column_step(step, kQPanelStride)));
    wgmma_commit_group();
  }
  // Scores of a block times its queries (of Q or dO).
  __device__ __forceinline__ void issue_gradient(GradientFragments& gradient, const PackedScores& scores,
      u32 tile) const {
    const u32 queries = tile_place(tile, kQPanelStride);
    wgmma_fence();
#pragma unroll
    for (i32 step = 0; step < kQuerySteps; ++step)
      wgmma_rs<true, true>(gradient, scores, step, matrix_descriptor(queries + row_step(step)));
    wgmma_commit_group();
  }
};
// A block of queries that attends to none of the warpgroup's keys: its dS is 0, and the others count on the stages. A
// buffer is released only after all lanes have seen it full; bar_warp_sync says so where no product holds the warp
// together.
__device__ __forceinline__ void skip_block(SoftmaxWarpgroup& warpgroup, bool publishes) {
  warpgroup.wait_order();
  warpgroup.pass_order();
  warpgroup.wait_q();
  warpgroup.wait_do();
  bar_warp_sync();
  warpgroup.release_q(warpgroup.q.stage);
  warpgroup.release_do();
  warpgroup.q.advance();
  const PackedScores zeros = {};
  if (publishes) warpgroup.publish(zeros);
}
// A warpgroup computes S, P, dP, dS, dK and dV of its 64 keys.
// A softmax warpgroup's share of dQ of each block, transposed: dQᵀ = Kᵀ dSᵀ over all keys of the tile, for 64 of the
// head dim and kDqQueries queries.
constexpr i32 kDqRows = 64, kDqRowTiles = (kHeadDimQk + kDqRows - 1) / kDqRows;
constexpr i32 kDqQueries = kBlockQ * kDqRowTiles / kSoftmaxWarpgroups;
constexpr bool kDqOfAllQueries = kDqQueries == kBlockQ;  // a warpgroup has all queries of its row tile
static_assert(kSoftmaxWarpgroups % kDqRowTiles == 0 && kDqQueries % 8 == 0 && kHeadDimQk % 16 == 0);
using DqFragments = float[kDqQueries / 2];

// The place in a ring that lies kBack before another one.
template <i32 kBack, i32 kCount>
__device__ __forceinline__ PipelineSlot<kCount> slot_before(PipelineSlot<kCount> slot) {
  static_assert(kBack <= kCount);
  if (slot.stage >= kBack) return {slot.stage - kBack, slot.parity};
  return {slot.stage - kBack + kCount, slot.parity ^ 1};
}

struct DqShare {
  Barriers barriers;
  u32 shared;
  DqFragments dq;
  i32 row_tile, first_query;  // of the head dim; of the block
  i32 sixteen_dims;           // of the warp; they may lie beyond the head dim
  float* sums;                // of the next block, from the warp's first fragment on
  i32 distance;               // to the block after that

  __device__ __forceinline__ DqShare(const SoftmaxWarpgroup& warpgroup)
      : barriers(warpgroup.barriers), shared(warpgroup.shared),
        row_tile(kDqOfAllQueries ? warpgroup.index : warpgroup.index % kDqRowTiles),
        first_query(kDqOfAllQueries ? 0 : warpgroup.index / kDqRowTiles * kDqQueries),
        sixteen_dims(row_tile * (kDqRows / 16) + static_cast<i32>(warp_index() % kWarpgroupWarps)) {}

  // A query head of the tile begins. head: counted as workspaces have them.
  __device__ __forceinline__ void begin_head(const Arguments& args, const Sequence& sequence, const QueryWalk& walk,
      i32 head) {
    sums = args.d_q_sums +
        transposed_sums_place<kBlockQ>(head, walk.blocks.all,
        first_block_of_queries<kBlockQ>(sequence) + walk.blocks.begin) +
        transposed_fragment_place<kBlockQ>(sixteen_dims, first_query / 8);
  }

  // dQᵀ = Kᵀ dSᵀ of the block whose dS lies there, when every warpgroup has handed over its part.
  __device__ __forceinline__ void issue(PipelineSlot<kDsStages> ds) {
    mbarrier_wait_parity(barriers.ds_full(ds.stage), ds.parity);
    const u32 place = tile_place(shared + kKOffset + row_tile * (kDqRows / kPanelColumns) * kKvPanelStride,
        kKvPanelStride);
    const u32 keys = static_cast<u32>(opaque_i32(static_cast<i32>(place)));  // as in issue_scores()
    const u32 scores = tile_place(shared + kDsOffset + ds.stage * kDsTileBytes + first_query * kPanelBytes,
        kQPanelStride);
    wgmma_fence();
    wgmma_ss_transposed_a_first<false>(dq, matrix_descriptor(keys), matrix_descriptor(scores));
#pragma unroll
    for (i32 step = 1; step < kKeySteps; ++step)
      wgmma_ss_transposed_a<true, false>(dq, matrix_descriptor(keys + row_step(step)),
          matrix_descriptor(scores + column_step(step, kQPanelStride)));
    wgmma_commit_group();
  }
  // When the product has landed: leaves dS and adds to the block's sums.
  __device__ __forceinline__ void add(PipelineSlot<kDsStages> ds) {
    wgmma_landed(dq);
    bar_warp_sync();
    if (lane_index() == 0) mbarrier_arrive(barriers.ds_empty(ds.stage));
    if (kHeadDimQk % kDqRows == 0 || sixteen_dims < kHeadDimQk / 16) add_fragments();
    sums += kHeadDimQk * kBlockQ * distance;
  }

  // Each lane adds its accumulators, four at a time.
  __device__ __forceinline__ void add_fragments() const {
#pragma unroll
    for (i32 n = 0; n < kDqQueries / 8; ++n) {
      const float fragment[4] = {dq[4 * n], dq[4 * n + 1], dq[4 * n + 2], dq[4 * n + 3]};
      add_sums(sums + n * kSumsOfFragment, fragment);
    }
  }
  __device__ __forceinline__ void end_adds() const {}
};

// What a softmax warpgroup holds of its keys, and what it computes with a block of queries between the products.
struct KeyGradients {
  const Arguments& args;
  const KeyTile& tile;
  SoftmaxWarpgroup warpgroup;
  ScoreFunction score;
  i32 head;          // of the queries
  ScoreFragments s, dp;
  PackedScores p, ds;
  GradientFragments dk, dv;
  DqShare dq;

  // Leaves s and dp unset: the first product overwrites them.
  __device__ __forceinline__ KeyGradients(const Arguments& args, const KeyTile& tile, const SoftmaxWarpgroup& warpgroup)
      : args(args), tile(tile), warpgroup(warpgroup), dq(warpgroup) {
#pragma unroll
    for (i32 i = 0; i < kHeadDimV / 2; ++i) dk[i] = dv[i] = 0;
  }

  // Pᵀ has 16 bits from its exponential on.
  __device__ __forceinline__ void exponentiate_scores(i32 block, bool masked) {
    score.modify(s);
    if (masked) mask_scores(s, args, tile.sequence, tile.first_key + warpgroup.first_key_of_thread(), block * kBlockQ);
    load_pairs(args, tile.sequence, warpgroup.shared, warpgroup.q.stage, head, block * kBlockQ, tile.first_key,
        warpgroup.first_key_of_warp());
    const PairElements pairs(args, warpgroup.shared, warpgroup.q.stage, warpgroup.first_key_of_warp());
      exponentiate(s, args.softmax_scale_log2, warpgroup.lse(), TermsOfPairs<true>{pairs});
    pack_scores(p, s);
  }
  __device__ __forceinline__ void differentiate_scores() {
    differentiate(dp, p, warpgroup.delta());
    pack_scores(ds, dp);
    warpgroup.publish(ds);
  }
  __device__ __forceinline__ void release_last_q() {
    warpgroup.release_q(warpgroup.q.stage);
    warpgroup.q.advance();
  }
};
// A block of queries. dK of the block before and Sᵀ follow each other without a pause, and so do dPᵀ, dV and dQ of the
// block before, beside which dSᵀ is computed. kFirst: there is no block before.
template <bool kFirst>
__device__ __forceinline__ void query_step(KeyGradients& keys, i32 block, bool masked) {
  SoftmaxWarpgroup& warpgroup = keys.warpgroup;
  const i32 before = warpgroup.q.stage;
  if (!kFirst) warpgroup.q.advance();
  warpgroup.wait_order();
  warpgroup.wait_q();
  if (!kFirst) warpgroup.issue_dk(keys.dk, keys.ds, before);   // dK = dK + dSᵀ Q, of the block before
  warpgroup.issue_s(keys.s);                                   // Sᵀ = K Qᵀ
  if (!kFirst) {
    wgmma_wait_group<1>();
    wgmma_landed(keys.dk);
    warpgroup.release_q(before);
  }
  wgmma_wait_group<0>();
  wgmma_landed(keys.s);
  keys.exponentiate_scores(block, masked);
  const PipelineSlot<kDsStages> ds = slot_before<1>(warpgroup.ds);
  warpgroup.wait_do();
  warpgroup.issue_dp(keys.dp);                                 // dPᵀ = V dOᵀ
  warpgroup.issue_dv(keys.dv, keys.p);                         // dV = dV + Pᵀ dO
  if (!kFirst) keys.dq.issue(ds);                              // dQᵀ = Kᵀ dSᵀ, of the block before
  warpgroup.pass_order();
  wgmma_wait_group<kFirst ? 1 : 2>();
  wgmma_landed(keys.dp);
  keys.differentiate_scores();
  wgmma_wait_group<kFirst ? 0 : 1>();
  wgmma_landed(keys.dv);
  warpgroup.release_do();
  if (!kFirst) {
    wgmma_wait_group<0>();
    keys.dq.add(ds);
  }
}
// When all blocks of a head have been seen: dK and dQ of the last one.
__device__ __forceinline__ void end_walk(KeyGradients& keys) {
  const PipelineSlot<kDsStages> ds = slot_before<1>(keys.warpgroup.ds);
  keys.warpgroup.issue_dk(keys.dk, keys.ds, keys.warpgroup.q.stage);  // dK = dK + dSᵀ Q
  keys.dq.issue(ds);                                                  // dQᵀ = Kᵀ dSᵀ
  wgmma_wait_group<0>();
  wgmma_landed(keys.dk);
  keys.release_last_q();
  keys.dq.add(ds);
}

// A block that attends to none of the warpgroup's keys, and the warpgroup's share of its dQ, to which other keys
// contribute.
__device__ __forceinline__ void skip_block(KeyGradients& keys) {
  skip_block(keys.warpgroup, true);
  const PipelineSlot<kDsStages> ds = slot_before<1>(keys.warpgroup.ds);
  keys.dq.issue(ds);
  wgmma_wait_group<0>();
  keys.dq.add(ds);
}
// Passes over the blocks from this one on that begin before `end`; the one behind them.
__device__ __forceinline__ i32 skip_blocks(KeyGradients& keys, const QueryWalk& walk, i32 block, i32 end) {
#pragma unroll 1
  while (block < end && block < walk.blocks.end) {
    const i32 next = walk.after(block);
    keys.dq.distance = next - block;
    skip_block(keys);
    block = next;
  }
  return block;
}

// What a softmax warpgroup does with a tile: dK and dV of its keys, from all blocks of queries.
__device__ __forceinline__ void add_key_gradients(const Arguments& args, const Barriers& barriers, i32 index,
    SoftmaxWarpgroup& warpgroup) {
  const KeyTile tile(args, index);
  const QueryWalk walk(args, tile);
  const i32 first_of_warp = warpgroup.first_key + static_cast<i32>(warp_index() % kWarpgroupWarps * 16);
  KeyGradients keys(args, tile, warpgroup);
  if (walk.any()) {
    const LiveBlocks live(args, tile, walk, tile.first_key + warpgroup.first_key);
    keys.warpgroup.begin_order();
    keys.warpgroup.wait_k();
    keys.warpgroup.wait_v();
    for (i32 head = 0; head < TileHeads::walked(args); ++head) {
      keys.head = TileHeads::of_queries(args, tile.head, head);
      keys.dq.begin_head(args, tile.sequence, walk,
          workspace_batch(tile.sequence) * args.heads_q + TileHeads::of_queries(args, tile.head, head));
      i32 block = walk.blocks.begin;
      block = skip_blocks(keys, walk, block, live.begin);
      if (block < live.end) {
        query_step<true>(keys, block, live.masked(block));
#pragma unroll 1
        for (i32 next = walk.after(block); next < live.end; next = walk.after(block)) {
          keys.dq.distance = next - block;
          block = next;
          query_step<false>(keys, block, live.masked(block));
        }
        end_walk(keys);
      }
    }
    keys.warpgroup.end_order();
    keys.dq.end_adds();
    warpgroup = keys.warpgroup;
  }
  const KeyTile stored(args, opaque_i32(index));
  await_key_sums(args, stored);
  store_dv(args, stored, first_of_warp, keys.dv);
  store_dk(args, stored, first_of_warp, keys.dk);
  pass_key_sums(args, stored);
}

extern "C" __global__ void __launch_bounds__(kThreads, kCtasPerSm)
    attune_backward_sm90(const __grid_constant__ Arguments args) {
  const u32 shared = shared_base();
  const Barriers barriers{shared + kBarrierOffset};
  const KeyTilesOfCta tiles(args, barriers, shared);
  const u32 warp = warp_index();
  if (thread_index() == 0) {
    prefetch_tensormap(args.k_map);
    prefetch_tensormap(args.q_map);
    prefetch_tensormap(args.v_map);
    prefetch_tensormap(args.d_o_map);
    if (args.attention_mask_by_map) prefetch_tensormap(args.attention_mask_map);
    barriers.init();
    griddepcontrol_launch_dependents();
  }
  bar_sync();
  if (warp < kWarpgroupWarps) {
    if (kProducerRegisters != 0) setmaxnreg_dec<kProducerRegisters>();
    QueryProducer producer(static_cast<i32>(warp));
    tiles.for_each(args, producer.slot, [&](i32 index) { load_operands(args, barriers, shared, index, producer); });
  } else {
    if (kSoftmaxRegisters != 0) setmaxnreg_inc<kSoftmaxRegisters>();
    SoftmaxWarpgroup warpgroup(barriers, shared, static_cast<i32>(warp / kWarpgroupWarps - 1));
    tiles.for_each(args, warpgroup.slot, [&](i32 index) { add_key_gradients(args, barriers, index, warpgroup); });
  }
}
static_assert(sizeof(Arguments) == kArgumentBytes, "the host packs the arguments as this compiler lays them out");

}  // namespace attune_ab1e2a00315f50ce
