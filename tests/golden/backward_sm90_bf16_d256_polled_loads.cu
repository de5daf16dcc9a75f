// attune backward bf16 d256 sm90 q64 kv64 st2 overlap=within dq=atomic polled-loads split-dkdv · source 216d58864e48b57f
//
// Attention backward on Hopper (wgmma, TMA, mbarriers) for one tile of keys of one key/value head. Keys are the rows of
// all products but dQ's:
//
//   for each query head of the group, for each block of queries:
//     Sᵀ = K Qᵀ        Pᵀ = exp2(c Sᵀ - LSE·log2(e)), masked     dV = dV + Pᵀ dO
//     dPᵀ = V dOᵀ      dSᵀ = Pᵀ ∘ (dPᵀ - delta)                  dK = dK + dSᵀ Q
//     dQ = dQ + dS K, in fp32, to be scaled by another kernel
//   dK = scale·dK,   c = scale·log2(e)
//
// Warpgroup 0 computes dQ and adds it to its sums; two of its warps load, one Q and LSE, one dO and delta. Two of the
// others share 64 keys: one computes S, P and dV, one dP, dS and dK. All blocks of a tile are walked in step: dS of a
// block goes to warpgroup 0 through shared memory.
//
// shared memory, bytes; a panel holds kPanelColumns columns of all rows of its tile:
//        0  K   [1][4][64][64]
//    32768  V   [1][4][64][64]
//    65536  Q   [2][4][64][64]
//   131072  dO  [2][4][64][64]
//   196608  dS  [2][1][64][64]
//   212992  P   [2][1][64][64]
//   229376  LSE  [2][64], fp32
//   229888  delta  [2][64], fp32
//   230400  barriers
//   230544  end

namespace attune_b600698f05249420 {

// #region primitives: of PTX, the instructions that this kernel uses
using i32 = int;
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

__device__ __forceinline__ void st_global_b32(void* to, u32 x) {
  asm volatile("st.global.b32 [%0], %1;" ::"l"(to), "r"(x) : "memory");
}
__device__ __forceinline__ void st_global_v4_b32(void* to, Vec4 x) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
}

__device__ __forceinline__ void st_shared_v4_b32(u32 to, Vec4 x) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
}
__device__ __forceinline__ Vec4 ld_shared_v4_b32(u32 from) {
  Vec4 r;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "r"(from)
      : "memory");
  return r;
}

struct alignas(16) Vec4F32 { float x, y, z, w; };

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

__device__ __forceinline__ float fma_rn_f32(float a, float b, float c) { return __fmaf_rn(a, b, c); }
// Clamped to [0, 1]; NaN becomes 0.
__device__ __forceinline__ float abs_f32(float x) { return fabsf(x); }

__device__ __forceinline__ float ex2_approx_ftz_f32(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

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

// Whether the phase of this parity has completed.
__device__ __forceinline__ bool mbarrier_test_wait_parity(u32 barrier, u32 parity) {
  u32 done;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.b32 %0, 1, 0, p;\n"
      "}" : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
  return done != 0;
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
__device__ __forceinline__ void wgmma_ss(float (&d)[128], u64 a_descriptor, u64 b_descriptor) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
        "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
        "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
      "%128, %129, p, 1, 1, 0, %131;\n"
      "}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
        "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]),
        "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]),
        "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]),
        "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]),
        "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]),
        "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103]),
        "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111]),
        "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119]),
        "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])
      : "l"(a_descriptor), "l"(b_descriptor), "n"(kAccumulate ? 1 : 0), "n"(kTransposed ? 1 : 0));
}
// wgmma with a from registers: its fragment is a[4 step], ... a[4 step + 3].
template <bool kAccumulate, bool kTransposed, i32 kFragments>
__device__ __forceinline__ void wgmma_rs(float (&d)[128], const u32 (&a)[kFragments], i32 step, u64 b_descriptor) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %133, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
        "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
        "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
      "{%128, %129, %130, %131}, "
      "%132, p, 1, 1, %134;\n"
      "}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
        "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]),
        "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]),
        "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]),
        "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]),
        "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]),
        "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103]),
        "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111]),
        "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119]),
        "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])
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
__device__ __forceinline__ void wgmma_ss_first(float (&d)[128], u64 a_descriptor, u64 b_descriptor) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, 0, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
        "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
        "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
      "%128, %129, p, 1, 1, 0, %130;\n"
      "}"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3]), "=f"(d[4]), "=f"(d[5]), "=f"(d[6]), "=f"(d[7]),
        "=f"(d[8]), "=f"(d[9]), "=f"(d[10]), "=f"(d[11]), "=f"(d[12]), "=f"(d[13]), "=f"(d[14]), "=f"(d[15]),
        "=f"(d[16]), "=f"(d[17]), "=f"(d[18]), "=f"(d[19]), "=f"(d[20]), "=f"(d[21]), "=f"(d[22]), "=f"(d[23]),
        "=f"(d[24]), "=f"(d[25]), "=f"(d[26]), "=f"(d[27]), "=f"(d[28]), "=f"(d[29]), "=f"(d[30]), "=f"(d[31]),
        "=f"(d[32]), "=f"(d[33]), "=f"(d[34]), "=f"(d[35]), "=f"(d[36]), "=f"(d[37]), "=f"(d[38]), "=f"(d[39]),
        "=f"(d[40]), "=f"(d[41]), "=f"(d[42]), "=f"(d[43]), "=f"(d[44]), "=f"(d[45]), "=f"(d[46]), "=f"(d[47]),
        "=f"(d[48]), "=f"(d[49]), "=f"(d[50]), "=f"(d[51]), "=f"(d[52]), "=f"(d[53]), "=f"(d[54]), "=f"(d[55]),
        "=f"(d[56]), "=f"(d[57]), "=f"(d[58]), "=f"(d[59]), "=f"(d[60]), "=f"(d[61]), "=f"(d[62]), "=f"(d[63]),
        "=f"(d[64]), "=f"(d[65]), "=f"(d[66]), "=f"(d[67]), "=f"(d[68]), "=f"(d[69]), "=f"(d[70]), "=f"(d[71]),
        "=f"(d[72]), "=f"(d[73]), "=f"(d[74]), "=f"(d[75]), "=f"(d[76]), "=f"(d[77]), "=f"(d[78]), "=f"(d[79]),
        "=f"(d[80]), "=f"(d[81]), "=f"(d[82]), "=f"(d[83]), "=f"(d[84]), "=f"(d[85]), "=f"(d[86]), "=f"(d[87]),
        "=f"(d[88]), "=f"(d[89]), "=f"(d[90]), "=f"(d[91]), "=f"(d[92]), "=f"(d[93]), "=f"(d[94]), "=f"(d[95]),
        "=f"(d[96]), "=f"(d[97]), "=f"(d[98]), "=f"(d[99]), "=f"(d[100]), "=f"(d[101]), "=f"(d[102]), "=f"(d[103]),
        "=f"(d[104]), "=f"(d[105]), "=f"(d[106]), "=f"(d[107]), "=f"(d[108]), "=f"(d[109]), "=f"(d[110]), "=f"(d[111]),
        "=f"(d[112]), "=f"(d[113]), "=f"(d[114]), "=f"(d[115]), "=f"(d[116]), "=f"(d[117]), "=f"(d[118]), "=f"(d[119]),
        "=f"(d[120]), "=f"(d[121]), "=f"(d[122]), "=f"(d[123]), "=f"(d[124]), "=f"(d[125]), "=f"(d[126]), "=f"(d[127])
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
};
constexpr u32 kArgumentBytes = 640;

constexpr i32 kHeadDimQk = 256, kHeadDimV = 256;  // elements of a row of Q and K, and of V and O
constexpr i32 kElementBytes = 2;
constexpr i32 kBlockQ = 64, kBlockKv = 64, kSoftmaxWarpgroups = 2;
constexpr i32 kStages = 2, kDoStages = 2, kDsStages = 2;  // tiles of Q, of dO, of dS
constexpr bool kOrderedWarpgroups = false;  // whether they issue S and dP in a fixed order
constexpr i32 kDqRegisters = 72, kSoftmaxRegisters = 216;  // 0: as they are at launch
constexpr i32 kDqColumns = 64, kDqProducts = 4, kDqLastColumns = 64;  // of a product for dQ; that exist of the last
constexpr i32 kCtasPerSm = 1, kCluster = 1;  // CTAs

constexpr i32 kWarpgroup = 128, kWarpgroupWarps = 4;  // threads, warps
constexpr i32 kWarpgroupKeys = 64, kWarpgroupsOfKeys = 2;  // rows of a wgmma; softmax warpgroups that share them
constexpr i32 kThreads = (kSoftmaxWarpgroups + 1) * kWarpgroup;
constexpr i32 kPanelColumns = 64, kPanels = 4;
constexpr u32 kPanelBytes = kElementBytes * kPanelColumns;  // of a row
constexpr u32 kQPanelStride = kBlockQ * kPanelBytes, kKvPanelStride = kBlockKv * kPanelBytes;
constexpr u32 kQTileBytes = kPanels * kQPanelStride, kKvTileBytes = kPanels * kKvPanelStride;
// the latter: LSE of a block, or delta
constexpr u32 kDsTileBytes = kElementBytes * kBlockQ * kBlockKv, kRowsBytes = 4 * kBlockQ;
constexpr u32 kKOffset = 0;
constexpr u32 kVOffset = 32768;
constexpr u32 kQOffset = 65536;
constexpr u32 kDoOffset = 131072;
constexpr u32 kDsOffset = 196608;
constexpr u32 kPOffset = 212992;
constexpr u32 kLseOffset = 229376;
constexpr u32 kDeltaOffset = 229888;
constexpr u32 kBarrierOffset = 230400;
constexpr i32 kChunks = kHeadDimQk / 8;                 // 16-byte chunks of a row
constexpr i32 kDimSteps = (kHeadDimQk + 15) / 16;       // k16 steps over the head dim; columns beyond it are zeros
// the same over a block of queries, a tile of keys
constexpr i32 kQuerySteps = kBlockQ / 16, kKeySteps = kBlockKv / 16;
static_assert(kHeadDimQk == kHeadDimV);  // rows of all tiles, and dK and dV, lie alike
static_assert(kBlockQ % 64 == 0 && kBlockKv % kWarpgroupKeys == 0 && kHeadDimQk % 8 == 0 &&
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
__device__ __forceinline__ i32 blocks_of_queries(const Arguments& args) {
  return (args.seq_q + kRows - 1) / kRows;
}
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
  __device__ __forceinline__ u32 p_full(i32 stage) const { return base + 96 + 8 * stage; }
  __device__ __forceinline__ u32 p_empty(i32 stage) const { return base + 112 + 8 * stage; }
  __device__ __forceinline__ u32 k_full() const { return base + 128; }
  __device__ __forceinline__ u32 v_full() const { return base + 136; }

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
      mbarrier_init(ds_full(i), 4);
      mbarrier_init(ds_empty(i), 4);
    }
    for (i32 i = 0; i < 2; ++i) {
      mbarrier_init(p_full(i), 4);
      mbarrier_init(p_empty(i), 4);
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

// The blocks of queries that a tile's CTA walks through, for each of its query heads: those that attend to any of its
// keys.
struct QueryWalk {
  QueryBlocks<true> blocks;

  __device__ __forceinline__ QueryWalk(const Arguments& args, const KeyTile& tile)
      : blocks(args, tile.sequence, tile.first_key, tile.keys) {
  }
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
// Copies a block of queries into a buffer that is free: Q and LSE, or dO and delta. blocks: of a head in workspaces.
__device__ __forceinline__ void copy_block(const Arguments& args, const Barriers& barriers, u32 shared, bool of_do,
    i32 stage, const Sequence& sequence, i32 query_head, i32 block, i32 blocks) {
  const u32 full = of_do ? barriers.d_o_full(stage) : barriers.q_full(stage);
  mbarrier_arrive_expect_tx(full, kQTileBytes + kRowsBytes);
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

  // Fills the buffer of the next block, if there is one and its buffer is free. For one lane, which alone knows the
  // next block.
  __device__ __forceinline__ void poll(const Arguments& args, const Barriers& barriers, const KeyTile& tile,
      const QueryWalk& walk, u32 shared) {
    if (head == TileHeads::walked(args) || !mbarrier_test_wait_parity(empty(barriers), parity ^ 1)) return;
    fill(args, barriers, tile, walk, shared);
    advance(walk);
  }

 private:
  __device__ __forceinline__ u32 empty(const Barriers& barriers) const {
    return of_do ? barriers.d_o_empty(stage) : barriers.q_empty(stage);
  }
  __device__ __forceinline__ void fill(const Arguments& args, const Barriers& barriers, const KeyTile& tile,
      const QueryWalk& walk, u32 shared) const {
    copy_block(args, barriers, shared, of_do, stage, tile.sequence, TileHeads::of_queries(args, tile.head, head), block,
        walk.blocks.all);
  }
  __device__ __forceinline__ void advance(const QueryWalk& walk) {
    if (++stage == stages()) {
      stage = 0;
      parity ^= 1;
    }
    if (++block == walk.blocks.end) {
      block = walk.blocks.begin;
      ++head;
    }
  }
};

// Tiles of keys add to the sums of dQ in no fixed order.
struct DqTickets {
  __device__ __forceinline__ DqTickets(const Arguments&, const KeyTile&) {}
  __device__ __forceinline__ void await(const QueryWalk&, i32 /*head*/, i32 /*block*/) const {}
  __device__ __forceinline__ void pass(const QueryWalk&, i32 /*block*/) const {}
};
using DqFragments = float[kDqColumns / 2];  // of dQ: columns of a product, of 64 queries
// of K, between the columns of one product and those of the next
constexpr u32 kDqPartBytes = kDqColumns / kPanelColumns * kKvPanelStride;

// dQ = dS K, or dQ += dS K. `columns`: the panel of K that the columns of the product begin with.
template <bool kFirst>
__device__ __forceinline__ void issue_dq(DqFragments& dq, u32 ds, u32 columns) {
  const u32 scores = tile_place(ds, kQPanelStride), keys = tile_place(columns, kKvPanelStride);
  if (kFirst)
    wgmma_ss_first<true>(dq, matrix_descriptor(scores), matrix_descriptor(keys));
  else
    wgmma_ss<true, true>(dq, matrix_descriptor(scores), matrix_descriptor(keys));
#pragma unroll
  for (i32 step = 1; step < kKeySteps; ++step)
    wgmma_ss<true, true>(dq, matrix_descriptor(scores + column_step(step, kQPanelStride)),
        matrix_descriptor(keys + row_step(step)));
}
// Each lane adds its accumulators, four at a time, to the sums of the warp's 16 queries; last: whether these are the
// last columns, of which fewer may exist.
__device__ __forceinline__ void add_dq(const DqFragments& dq, float* sums, bool last, u32 /*shared*/) {
#pragma unroll
  for (i32 n = 0; n < kDqColumns / 8; ++n) {
    const float fragment[4] = {dq[4 * n], dq[4 * n + 1], dq[4 * n + 2], dq[4 * n + 3]};
    if (n < kDqLastColumns / 8 || !last) add_sums(sums + n * kSumsOfFragment, fragment);
  }
}
__device__ __forceinline__ void end_dq_adds() {}

// What warpgroup 0 multiplies: dS of the CTA's own tile with K. A CTA computes all columns of dQ.
struct DqScores {
  static constexpr i32 kProducts = kDqProducts;  // for 64 queries

  __device__ __forceinline__ explicit DqScores(const KeyTile&) {}
  // Columns of a product, counted in products.
  __device__ __forceinline__ i32 part(i32 product) const { return product; }

  __device__ __forceinline__ void load_keys(const Arguments& args, const Barriers& barriers, const KeyTile& tile,
      i32 head_kv, u32 shared) const {
    load_tile<kKvPanelStride>(shared + kKOffset, args.k_map, barriers.k_full(), head_kv,
        place_of_keys(args, tile.sequence, tile.tile));
  }
  __device__ __forceinline__ void expect(const Barriers&, PipelineSlot<kDsStages>) const {}
  __device__ __forceinline__ void issue(DqFragments& dq, const Barriers&, PipelineSlot<kDsStages> ds, i32 rows,
      i32 part, u32 shared) const {
    wgmma_fence();
    issue_dq<true>(dq, shared + kDsOffset + ds.stage * kDsTileBytes + rows * kPanelBytes,
        shared + kKOffset + part * kDqPartBytes);
    wgmma_commit_group();
  }
  __device__ __forceinline__ void release(const Barriers& barriers, PipelineSlot<kDsStages> ds) const {
    if (lane_index() == 0) mbarrier_arrive(barriers.ds_empty(ds.stage));
  }
};

// Where warpgroup 0 stands in the rings, from tile to tile.
struct DqWarpgroup {
  i32 warp;
  QueryLoads queries;
  PipelineSlot<kDsStages> ds;
  TileSlot slot;

  __device__ __forceinline__ explicit DqWarpgroup(i32 warp) : warp(warp), queries(warp == 2) {}
};

// What warpgroup 0 does with a tile: dQ += dS K for each block of queries, and all loads. A buffer is filled anew when
// every softmax warpgroup has left it: while a product runs, and while dS is waited for, one lane of a loading warp
// looks again and again.
__device__ __forceinline__ void add_query_gradients(const Arguments& args, const Barriers& barriers, u32 shared,
    i32 index, DqWarpgroup& warpgroup) {
  const KeyTile tile(args, index);
  const QueryWalk walk(args, tile);
  const i32 warp = warpgroup.warp;
  const bool loads = warp == 1 || warp == 2;
  const TileSlot slot = warpgroup.slot;
  if (!walk.any()) {
    griddepcontrol_wait();  // a launch ends no earlier than the one before it
    return;
  }
  QueryLoads& queries = warpgroup.queries;
  const DqScores scores(tile);
  PipelineSlot<kDsStages>& ds = warpgroup.ds;
  if (loads) {
    const i32 head_kv = TileHeads::of_keys(args, tile.head);
    if (lane_index() == 0) {
      if (queries.of_do)
        load_tile<kKvPanelStride>(shared + kVOffset, args.v_map, barriers.v_full(), head_kv,
            place_of_keys(args, tile.sequence, tile.tile));
      else
        scores.load_keys(args, barriers, tile, head_kv, shared);
    }
    griddepcontrol_wait();  // the statistics are another kernel's
    queries.begin(walk);
  }
  bar_warp_sync();
  DqTickets tickets(args, tile);
  if (loads) {
    if (lane_index() == 0) {
      while (!mbarrier_test_wait_parity(barriers.k_full(), slot.parity()))
        queries.poll(args, barriers, tile, walk, shared);
    }
    bar_warp_sync();
  }
  mbarrier_wait_parity(barriers.k_full(), slot.parity());
#pragma unroll 1
  for (i32 walked = 0; walked < TileHeads::walked(args); ++walked) {
    const i32 head = workspace_batch(tile.sequence) * args.heads_q + TileHeads::of_queries(args, tile.head, walked);
    float* sums = args.d_q_sums +
        sums_place(head, blocks_of_queries<kBlockQ>(args) * kBlockQ,
        (first_block_of_queries<kBlockQ>(tile.sequence) + walk.blocks.begin) * kBlockQ + 16 * warp, 0);
#pragma unroll 1
    for (i32 block = walk.blocks.begin; block < walk.blocks.end; ++block) {
      scores.expect(barriers, ds);
      if (loads) {
        if (lane_index() == 0) {
          while (!mbarrier_test_wait_parity(barriers.ds_full(ds.stage), ds.parity))
            queries.poll(args, barriers, tile, walk, shared);
        }
        bar_warp_sync();
      }
      mbarrier_wait_parity(barriers.ds_full(ds.stage), ds.parity);
      // Not unrolled, so that one product's accumulators are the next one's.
#pragma unroll 1
      for (i32 i = 0; i < kBlockQ / 64 * DqScores::kProducts; ++i) {
        const i32 row_tile = i / DqScores::kProducts, part = scores.part(i - row_tile * DqScores::kProducts);
        DqFragments dq;
        scores.issue(dq, barriers, ds, 64 * row_tile, part, shared);
        if (loads && lane_index() == 0) queries.poll(args, barriers, tile, walk, shared);
        bar_warp_sync();
        if (i == 0) tickets.await(walk, head, block);
        wgmma_wait_group<0>();
        wgmma_landed(dq);
        if (i == kBlockQ / 64 * DqScores::kProducts - 1) {
          bar_warp_sync();
          scores.release(barriers, ds);
        }
        // Four warps have 16 queries each.
        add_dq(dq, sums + (row_tile * (64 / 16) * kChunks + part * (kDqColumns / 8)) * kSumsOfFragment,
            part == kDqProducts - 1, shared);
      }
      sums += kBlockQ / 16 * kChunks * kSumsOfFragment;
      tickets.pass(walk, block);
      bar_warp_sync();
      ds.advance();
    }
  }
  end_dq_adds();
}
// LSE or delta of a lane's columns among sixteen, from the statistics of a block.
__device__ __forceinline__ Vec4F32 load_columns(u32 rows, i32 sixteen) {
  return ld_shared_v4_f32(rows + 64 * sixteen + lane_index() % 4 * 16);
}
__device__ __forceinline__ float column_of(const Vec4F32& columns, i32 i) {
  return i & 4 ? (i & 1 ? columns.w : columns.z) : (i & 1 ? columns.y : columns.x);
}

// LSE or delta of a lane's columns in a block, to be used upwards or downwards, sixteen queries after the other. What
// is used first, kEarly sixteens, is read at once; the rest as it is used.
template <i32 kEarly, bool kUpwards>
struct BlockColumns {
  u32 rows;
  Vec4F32 early[kEarly == 0 ? 1 : kEarly];

  __device__ __forceinline__ explicit BlockColumns(u32 rows) : rows(rows) {
#pragma unroll
    for (i32 use = 0; use < kEarly; ++use) early[use] = load_columns(rows, kUpwards ? use : kQuerySteps - 1 - use);
  }
  __device__ __forceinline__ Vec4F32 of(i32 sixteen) const {
    const i32 use = kUpwards ? sixteen : kQuerySteps - 1 - sixteen;
    return use < kEarly ? early[use] : load_columns(rows, sixteen);
  }
};
using LseColumns = BlockColumns<0, true>;
using DeltaColumns = BlockColumns<0, false>;

// Turns Sᵀ into Pᵀ. An exponent is positive only by what rounding left of LSE: it counts as negative, so that P does
// not exceed 1.
__device__ __forceinline__ void exponentiate(ScoreFragments& s, float scale_log2, const LseColumns& lse) {
#pragma unroll
  for (i32 k = 0; k < kQuerySteps; ++k) {
    const Vec4F32 columns = lse.of(k);
#pragma unroll
    for (i32 i = 0; i < 8; ++i)
      s[8 * k + i] = ex2_approx_ftz_f32(-abs_f32(fma_rn_f32(s[8 * k + i], scale_log2, -column_of(columns, i))));
  }
}

// Scores in 16 bits.
__device__ __forceinline__ void pack_scores(PackedScores& packed, const ScoreFragments& scores) {
#pragma unroll
  for (i32 i = 0; i < kBlockQ / 4; ++i) packed[i] = pack_elements(scores[2 * i], scores[2 * i + 1]);
}

// Turns dPᵀ into dSᵀ = Pᵀ ∘ (dPᵀ - delta). Downwards: in 16 bits dSᵀ can take the upper half of dPᵀ's registers, so
// that the next scores fit below it.
__device__ __forceinline__ void differentiate(ScoreFragments& dp, const PackedScores& p, const DeltaColumns& delta) {
#pragma unroll
  for (i32 k = kQuerySteps - 1; k >= 0; --k) {
    const Vec4F32 columns = delta.of(k);
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
  PipelineSlot<kDsStages> p;

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
  // Hands dSᵀ of a block to warpgroup 0.
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
    const u32 rows = kDimSteps > 12 ? static_cast<u32>(opaque_i32(static_cast<i32>(place))) : place;
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
// Two warpgroups share the same 64 keys: the first computes S, P and dV, the second dP, dS and dK. P goes from one to
// the other through shared memory, where each thread of the second reads what its like of the first has written: both
// hold the same elements.
constexpr i32 kKeyGroups = kSoftmaxWarpgroups / 2;
constexpr u32 kPBytes = kBlockQ * kWarpgroup;  // of a group of keys
constexpr u32 kPPlace = kPOffset, kPStageBytes = kKeyGroups * kPBytes;

struct ProbabilityPipe {
  Barriers barriers;
  i32 group;
  u32 place;  // of this thread in the first stage

  __device__ __forceinline__ ProbabilityPipe(const Barriers& barriers, u32 shared, i32 group)
      : barriers(barriers), group(group),
        place(shared + kPPlace + group * kPBytes + thread_index() % kWarpgroup * 16) {}

  // Before P is put.
  __device__ __forceinline__ void wait_empty(const PipelineSlot<kDsStages>& slot) const {
    mbarrier_wait_parity(barriers.p_empty(slot.stage * kKeyGroups + group), slot.parity ^ 1);
  }
  // When P has been put.
  __device__ __forceinline__ void pass(PipelineSlot<kDsStages>& slot) const {
    bar_warp_sync();
    if (lane_index() == 0) mbarrier_arrive(barriers.p_full(slot.stage * kKeyGroups + group));
    slot.advance();
  }
  // Before P is taken.
  __device__ __forceinline__ void wait_full(const PipelineSlot<kDsStages>& slot) const {
    mbarrier_wait_parity(barriers.p_full(slot.stage * kKeyGroups + group), slot.parity);
  }
  // When P has been taken.
  __device__ __forceinline__ void release(PipelineSlot<kDsStages>& slot) const {
    bar_warp_sync();
    if (lane_index() == 0) mbarrier_arrive(barriers.p_empty(slot.stage * kKeyGroups + group));
    slot.advance();
  }

  __device__ __forceinline__ void put(const PackedScores& p, PipelineSlot<kDsStages>& slot) const {
    wait_empty(slot);
#pragma unroll
    for (i32 i = 0; i < kBlockQ / 16; ++i)
      st_shared_v4_b32(place + slot.stage * kPStageBytes + i * kWarpgroup * 16,
          {p[4 * i], p[4 * i + 1], p[4 * i + 2], p[4 * i + 3]});
    pass(slot);
  }
  __device__ __forceinline__ void take(PackedScores& p, PipelineSlot<kDsStages>& slot) const {
    wait_full(slot);
#pragma unroll
    for (i32 i = 0; i < kBlockQ / 16; ++i) {
      const Vec4 words = ld_shared_v4_b32(place + slot.stage * kPStageBytes + i * kWarpgroup * 16);
      p[4 * i] = words.x;
      p[4 * i + 1] = words.y;
      p[4 * i + 2] = words.z;
      p[4 * i + 3] = words.w;
    }
    release(slot);
  }
};

// What the first of the two holds. A buffer of Q or dO is left when what was computed from its LSE or delta has been
// put: an arrival that follows a load at once was seen to overtake it, and TMA then to fill the buffer before the load
// had read it.
struct ValueGradients {
  const Arguments& args;
  const KeyTile& tile;
  SoftmaxWarpgroup warpgroup;
  ProbabilityPipe pipe;
  ScoreFunction score;
  ScoreFragments s;
  PackedScores p;
  GradientFragments dv;

  // Leaves s unset: the first product overwrites it.
  __device__ __forceinline__ ValueGradients(const Arguments& args, const KeyTile& tile,
      const SoftmaxWarpgroup& warpgroup, const ProbabilityPipe& pipe)
      : args(args), tile(tile), warpgroup(warpgroup), pipe(pipe) {
#pragma unroll
    for (i32 i = 0; i < kHeadDimV / 2; ++i) dv[i] = 0;
  }
  // K: for the tile's S.
  __device__ __forceinline__ void wait_operand() const { warpgroup.wait_k(); }
  // Turns S into P.
  __device__ __forceinline__ void exponentiate_scores(i32 block, bool masked) {
    score.modify(s);
    if (masked) mask_scores(s, args, tile.sequence, tile.first_key + warpgroup.first_key_of_thread(), block * kBlockQ);
    exponentiate(s, args.softmax_scale_log2, LseColumns(warpgroup.lse()));
  }
  // Hands P over, and leaves Q, with which LSE came. To be called when no product reads P of the block before any more.
  __device__ __forceinline__ void hand_over() {
    pack_scores(p, s);
    pipe.put(p, warpgroup.p);
    warpgroup.release_q(warpgroup.q.stage);
    warpgroup.q.advance();
  }
  __device__ __forceinline__ void issue_dv() {
    warpgroup.wait_do();
    warpgroup.issue_dv(dv, p);  // dV = dV + Pᵀ dO
  }
  __device__ __forceinline__ void finish_dv() {
    wgmma_wait_group<0>();
    wgmma_landed(dv);
    warpgroup.release_do();
  }
};

// What the second one holds.
struct KeyGradients {
  SoftmaxWarpgroup warpgroup;
  ProbabilityPipe pipe;
  // empty and unused: without it ptxas numbers some kernels' registers otherwise, and they count as new ones
  ScoreFunction score;
  ScoreFragments dp;
  PackedScores ds;
  GradientFragments dk;

  // Leaves dp unset: the first product overwrites it.
  __device__ __forceinline__ KeyGradients(const SoftmaxWarpgroup& warpgroup, const ProbabilityPipe& pipe)
      : warpgroup(warpgroup), pipe(pipe) {
#pragma unroll
    for (i32 i = 0; i < kHeadDimQk / 2; ++i) dk[i] = 0;
  }
  // V: for the tile's dP.
  __device__ __forceinline__ void wait_operand() const { warpgroup.wait_v(); }
  // Turns dP into dS.
  __device__ __forceinline__ void differentiate_scores(const DeltaColumns& delta) {
    PackedScores p;
    pipe.take(p, warpgroup.p);
    differentiate(dp, p, delta);
  }
  // Hands dS over, and leaves dO, with which delta came. To be called when no product reads dS of the block before any
  // more.
  __device__ __forceinline__ void publish() {
    pack_scores(ds, dp);
    warpgroup.publish(ds);
    warpgroup.release_do();
  }
  __device__ __forceinline__ void issue_dk() {
    warpgroup.wait_q();
    warpgroup.issue_dk(dk, ds, warpgroup.q.stage);  // dK = dK + dSᵀ Q
  }
  __device__ __forceinline__ void finish_dk() {
    wgmma_wait_group<0>();
    wgmma_landed(dk);
    warpgroup.release_q(warpgroup.q.stage);
    warpgroup.q.advance();
  }
};

// A block of queries: S is issued with dV of the block before, so that the exponentials run beside dV. kFirst: there is
// no block before.
template <bool kFirst>
__device__ __forceinline__ void query_step(ValueGradients& values, i32 block, bool masked) {
  SoftmaxWarpgroup& warpgroup = values.warpgroup;
  warpgroup.wait_q();
  warpgroup.issue_s(values.s);        // Sᵀ = K Qᵀ
  if (!kFirst) values.issue_dv();     // of the block before
  wgmma_wait_group<kFirst ? 0 : 1>();
  wgmma_landed(values.s);
  values.exponentiate_scores(block, masked);
  if (!kFirst) values.finish_dv();
  values.hand_over();
}
__device__ __forceinline__ void end_walk(ValueGradients& values) {
  values.issue_dv();
  values.finish_dv();
}

// The same with dP, dK of the block before, and dS.
template <bool kFirst>
__device__ __forceinline__ void query_step(KeyGradients& keys, i32 /*block*/, bool /*masked*/) {
  SoftmaxWarpgroup& warpgroup = keys.warpgroup;
  warpgroup.wait_do();
  warpgroup.issue_dp(keys.dp);        // dPᵀ = V dOᵀ
  if (!kFirst) keys.issue_dk();       // of the block before
  const DeltaColumns delta(warpgroup.delta());
  wgmma_wait_group<kFirst ? 0 : 1>();
  wgmma_landed(keys.dp);
  keys.differentiate_scores(delta);
  if (!kFirst) keys.finish_dk();
  keys.publish();
}
__device__ __forceinline__ void end_walk(KeyGradients& keys) {
  keys.issue_dk();
  keys.finish_dk();
}

template <class Gradients>
__device__ __forceinline__ void pass_over(Gradients& gradients, bool publishes) {
  skip_block(gradients.warpgroup, publishes);
}

// Walks through the tile's blocks: those that attend to none of the 64 keys are passed over.
template <class Gradients>
__device__ __forceinline__ void walk_blocks(const Arguments& args, const KeyTile& tile, const QueryWalk& walk,
    Gradients& gradients, bool publishes) {
  const LiveBlocks live(args, tile, walk, tile.first_key + gradients.warpgroup.first_key);
  for (i32 head = 0; head < TileHeads::walked(args); ++head) {
    i32 block = walk.blocks.begin;
#pragma unroll 1
    for (; block < live.begin; ++block) pass_over(gradients, publishes);
    if (block < live.end) {
      query_step<true>(gradients, block, live.masked(block));
#pragma unroll 1
      for (++block; block < live.end; ++block) query_step<false>(gradients, block, live.masked(block));
      end_walk(gradients);
    }
  }
}

// What a softmax warpgroup does with a tile: dV or dK of its keys, from all blocks of queries.
__device__ __forceinline__ void add_key_gradients(const Arguments& args, const Barriers& barriers, i32 index,
    SoftmaxWarpgroup& warpgroup) {
  const KeyTile tile(args, index);
  const QueryWalk walk(args, tile);
  const i32 first_of_warp = warpgroup.first_key + static_cast<i32>(warp_index() % kWarpgroupWarps * 16);
  const ProbabilityPipe pipe(barriers, warpgroup.shared, warpgroup.index / 2);
  if (warpgroup.index % 2 == 0) {
    ValueGradients values(args, tile, warpgroup, pipe);
    if (walk.any()) {
      values.wait_operand();
      walk_blocks(args, tile, walk, values, false);
      warpgroup = values.warpgroup;
    }
    const KeyTile stored(args, opaque_i32(index));
    await_key_sums(args, stored);
    store_dv(args, stored, first_of_warp, values.dv);
  } else {
    KeyGradients keys(warpgroup, pipe);
    if (walk.any()) {
      keys.wait_operand();
      walk_blocks(args, tile, walk, keys, true);
      warpgroup = keys.warpgroup;
    }
    const KeyTile stored(args, opaque_i32(index));
    await_key_sums(args, stored);
    store_dk(args, stored, first_of_warp, keys.dk);
  }
  pass_key_sums(args, KeyTile(args, opaque_i32(index)));
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
    barriers.init();
    griddepcontrol_launch_dependents();
  }
  bar_sync();
  if (warp < kWarpgroupWarps) {
    if (kDqRegisters != 0) setmaxnreg_dec<kDqRegisters>();
    DqWarpgroup warpgroup(static_cast<i32>(warp));
    tiles.for_each(args, warpgroup.slot, [&](i32 index) {
      add_query_gradients(args, barriers, shared, index, warpgroup);
    });
  } else {
    if (kSoftmaxRegisters != 0) setmaxnreg_inc<kSoftmaxRegisters>();
    SoftmaxWarpgroup warpgroup(barriers, shared, static_cast<i32>(warp / kWarpgroupWarps - 1));
    tiles.for_each(args, warpgroup.slot, [&](i32 index) { add_key_gradients(args, barriers, index, warpgroup); });
  }
}
static_assert(sizeof(Arguments) == kArgumentBytes, "the host packs the arguments as this compiler lays them out");

}  // namespace attune_b600698f05249420
