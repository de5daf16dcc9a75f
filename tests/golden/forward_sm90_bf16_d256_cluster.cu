// attune forward bf16 d256 causal sm90 q128 kv80 st2 order=tile-major-reversed rescale10 overlap=within scheduler=dynamic-persistent vst1 cluster2 · source 432390e80c5d7c04
//
// Attention forward on Hopper (wgmma, TMA, mbarriers), for tiles of queries:
//
//   for each block of keys:                           S = Q Kᵀ, masked        m' = max(m, rowmax S)
//                                                     P = exp2(c S - c m')    l = l·exp2(c m - c m') + rowsum P
//                                                     O = O·exp2(c m - c m') + P V
//   O = O / l,   LSE = scale·m + ln l,   c = scale·log2(e)
//
// Warpgroup 0 is the producer: one thread of it copies tiles of Q, K and V by TMA. Each of the others owns 64 queries
// of the tile; their S and O stay in registers, P too or in shared memory.
//
// The CTAs of a cluster take neighbouring tiles of one head. Each loads a part of the rows of every tile of K and V,
// for all of them.
//
// shared memory, bytes; a panel holds kPanelColumns columns of all rows of its tile:
//        0  Q  [1][4][128][64]
//    65536  K  [2][4][80][64]
//   147456  V  [1][4][80][64]
//   188416  barriers, numbers of tiles
//   188496  end

namespace attune_b0bbc0bc8ba56092 {

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

__device__ __forceinline__ u32 cluster_cta_rank() {
  u32 r;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return r;
}

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

// The bits that are set in any lane's x. The compiler knows that a warp's lanes have the same result, as it does not
// know of a shuffle's.
__device__ __forceinline__ u32 redux_sync_or_b32(u32 x) {
  u32 r;
  asm volatile("redux.sync.or.b32 %0, %1, 0xffffffff;" : "=r"(r) : "r"(x));
  return r;
}

// Stores x in shared memory of CTA `cta` of the cluster; its 4 bytes complete on that CTA's barrier.
__device__ __forceinline__ void st_async_cluster_b32(u32 to, u32 x, u32 barrier, u32 cta) {
  asm volatile(
      "{\n"
      ".reg .b32 remote, remote_barrier;\n"
      "mapa.shared::cluster.u32 remote, %0, %3;\n"
      "mapa.shared::cluster.u32 remote_barrier, %2, %3;\n"
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [remote], %1, [remote_barrier];\n"
      "}" ::"r"(to), "r"(x), "r"(barrier), "r"(cta) : "memory");
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

// All lanes of the warp; orders their accesses to shared memory.
__device__ __forceinline__ void bar_warp_sync() { __syncwarp(); }

__device__ __forceinline__ u32 atom_relaxed_gpu_global_add_u32(u32* to, u32 x) {
  u32 before;
  asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(to), "r"(x) : "memory");
  return before;
}

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

// All threads of all CTAs of the cluster.
__device__ __forceinline__ void barrier_cluster_sync() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

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

// Arrives at the barrier that lies at this address in CTA `cta` of the cluster, to say that what this thread has read
// may be overwritten. What it has written counts as handed over within its own CTA only: a release to the cluster is a
// MEMBAR of the whole GPU, hundreds of clocks.
__device__ __forceinline__ void mbarrier_arrive_cluster(u32 barrier, u32 cta) {
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
      "}" ::"r"(barrier), "r"(cta) : "memory");
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

// Copies a box to every CTA of `ctas` (a bit each) of the cluster, to the same address, completing on the same barrier
// of each.
__device__ __forceinline__ void cp_async_bulk_tensor_4d_load_multicast(u32 to, const TensorMap& map, u32 barrier,
    u16 ctas, i32 dim, i32 head, i32 row, i32 batch) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, %4, %5, %6}], [%2], %7;"
      ::"r"(to), "l"(&map), "r"(barrier), "r"(dim), "r"(head), "r"(row), "r"(batch), "h"(ctas) : "memory");
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
__device__ __forceinline__ void wgmma_ss(float (&d)[40], u64 a_descriptor, u64 b_descriptor) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %42, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n80k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39}, "
      "%40, %41, p, 1, 1, 0, %43;\n"
      "}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39])
      : "l"(a_descriptor), "l"(b_descriptor), "n"(kAccumulate ? 1 : 0), "n"(kTransposed ? 1 : 0));
}
// wgmma with a from registers: its fragment is a[4 step], ... a[4 step + 3].
template <bool kAccumulate, bool kTransposed, i32 kFragments>
__device__ __forceinline__ void wgmma_rs(float (&d)[40], const u32 (&a)[kFragments], i32 step, u64 b_descriptor) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %45, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n80k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39}, "
      "{%40, %41, %42, %43}, "
      "%44, p, 1, 1, %46;\n"
      "}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39])
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
  u32* tile_counter;
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
};
constexpr u32 kArgumentBytes = 512;

constexpr i32 kHeadDimQk = 256, kHeadDimV = 256;  // elements of a row of Q and K, and of V and O
constexpr i32 kElementBytes = 2;
constexpr i32 kBlockQ = 128, kBlockKv = 80, kConsumers = 2;
constexpr i32 kStages = 2, kVStages = 1, kQStages = 1;  // tiles of K, of V, of Q
constexpr bool kEvenTiles = false;      // lengths are multiples of the tiles
constexpr bool kPartialBlocks = true;   // whether any block can need a mask
constexpr bool kOrderedWarpgroups = false;       // whether warpgroups issue their products in a fixed order
constexpr float kRescaleThreshold = 10;   // in powers of two; 0: rescale at every block
// powers of two by which P is smaller than row_max says, so that it never exceeds 1; 0: no room below
constexpr float kHeadroom = 10;
constexpr i32 kProducerRegisters = 32, kConsumerRegisters = 232;  // 0: as they are at launch
constexpr i32 kCtasPerSm = 1, kCluster = 2;  // CTAs

constexpr i32 kWarpgroup = 128;                  // threads
constexpr i32 kThreads = (kConsumers + 1) * kWarpgroup;
constexpr i32 kPanelColumns = 64, kPanels = 4;
constexpr u32 kPanelBytes = kElementBytes * kPanelColumns;  // of a row
constexpr u32 kQPanelStride = kBlockQ * kPanelBytes, kKvPanelStride = kBlockKv * kPanelBytes;
constexpr u32 kQTileBytes = kPanels * kQPanelStride, kKvTileBytes = kPanels * kKvPanelStride;
constexpr u32 kQOffset = 0;
constexpr u32 kKOffset = 65536;
constexpr u32 kVOffset = 147456;
constexpr u32 kBarrierOffset = 188416;
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
__device__ __forceinline__ void load_box_multicast(u32 to, const TensorMap& map, u32 full, u16 ctas, i32 column,
    i32 head, MapPlace place) {
  cp_async_bulk_tensor_4d_load_multicast(to, map, full, ctas, column, head, place.row, place.batch);
}

// Named barriers, one for each consumer warpgroup, from these on.
constexpr u32 kOrder = 1, kProbabilities = kOrder + kConsumers;

struct TileIndex {
  i32 tile, batch_head;
};
// Consecutive CTAs take the same tile of every head, the last tile first: under a causal mask the longest of all heads
// first.
__device__ __forceinline__ TileIndex tile_index(const Arguments& args, u32 cta) {
  const u32 heads = args.batch * args.heads_q;
  return {static_cast<i32>(args.query_tiles - 1 - cta / heads), static_cast<i32>(cta % heads)};
}

struct QueryTile {
  Sequence sequence;
  i32 head, head_kv;    // its first query head
  i32 first_row, rows;  // rows that exist
  KeyBlocks blocks;     // that any of its rows attends to

  __device__ __forceinline__ QueryTile(const Arguments& args, i32 number) {
    const TileIndex index = tile_index(args, number);
    sequence = Sequence(args, index.batch_head / args.heads_q);
    head = index.batch_head - sequence.batch * args.heads_q;
    head_kv = head / args.group_size;
    // Each CTA takes one tile of a pair and walks the blocks of both. The second tile may have no rows.
    const i32 first = index.tile * kCluster * kBlockQ, all = all_rows(args) - first;
    const i32 before = static_cast<i32>(cluster_cta_rank()) * kBlockQ;
    first_row = first + before;
    rows = kEvenTiles || all - before > kBlockQ ? kBlockQ : all - before;
    const i32 last = first + (kEvenTiles || all > kCluster * kBlockQ ? kCluster * kBlockQ : all) - 1;
    blocks = KeyBlocks(args, sequence, position_of(first), position_of(last));
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
  __device__ __forceinline__ u32 v_empty(i32 stage) const { return base + 56 + 8 * stage; }
  // Where the first CTA's choice of a tile reaches the others of the cluster.
  __device__ __forceinline__ u32 passing() const { return base + 64; }
  __device__ __forceinline__ u32 passed_tile() const { return tile_of(kQStages); }
  __device__ __forceinline__ u32 tile_of(i32 q_stage) const { return base + 72 + 4 * q_stage; }

  __device__ __forceinline__ void init() const {
    constexpr u32 kConsumerWarps = 4 * kConsumers;
    for (i32 i = 0; i < 1; ++i) {
      mbarrier_init(q_full(i), 1);
      mbarrier_init(q_empty(i), kConsumerWarps);
    }
    for (i32 i = 0; i < 2; ++i) {
      mbarrier_init(k_full(i), 1);
      mbarrier_init(k_empty(i), kConsumerWarps * kCluster);
    }
    for (i32 i = 0; i < 1; ++i) {
      mbarrier_init(v_full(i), 1);
      mbarrier_init(v_empty(i), kConsumerWarps * kCluster);
    }
    mbarrier_init(passing(), 1);
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

// Persistent CTAs, or clusters of them, begin with the tile of their number, which costs no wait, and take the next one
// when they need it; the producer tells the consumers with the tile's queries.
struct ProducerTiles {
  u32 parity = 0;

  __device__ __forceinline__ i32 first(const Arguments&, const Barriers&) {
    return static_cast<i32>(block_index() / kCluster);
  }
  // The first CTA of a cluster takes a tile for the whole cluster and passes it on when the one before has been read.
  // The first CTA's barrier says that it has been read, the barrier of each other CTA that the tile has come.
  __device__ __forceinline__ i32 next(const Arguments& args, const Barriers& barriers) {
    i32 tile;
    if (cluster_cta_rank() == 0) {
      tile = take(args);
      mbarrier_wait_parity(barriers.passing(), parity ^ 1);
      st_async_cluster_b32(barriers.passed_tile(), static_cast<u32>(tile), barriers.passing(), 1);
    } else {
      mbarrier_arrive_expect_tx(barriers.passing(), 4);
      mbarrier_wait_parity(barriers.passing(), parity);
      tile = static_cast<i32>(ld_shared_b32(barriers.passed_tile()));
      mbarrier_arrive_cluster(barriers.passing(), 0);
    }
    parity ^= 1;
    return tile;
  }
  // To be called before the arrival on q_full that the consumers wait for.
  __device__ __forceinline__ void publish(i32 tile, const Barriers& barriers, PipelineSlot<kQStages> q) {
    st_shared_b32(barriers.tile_of(q.stage), static_cast<u32>(tile));
    if (tile < 0) mbarrier_arrive(barriers.q_full(q.stage));
  }

 private:
  __device__ __forceinline__ static i32 take(const Arguments& args) {
    const i32 tile = static_cast<i32>(grid_size() / kCluster + atom_relaxed_gpu_global_add_u32(args.tile_counter, 1));
    return tile < args.tiles ? tile : -1;
  }
};

struct ConsumerTiles {
  // Every lane reads the same number, which ptxas cannot know of a load: the loops that hang on it would count as
  // divergent, and each product would fetch its descriptors from the registers of the lanes.
  __device__ __forceinline__ i32 next(const Arguments&, const Barriers& barriers, PipelineSlot<kQStages> q) {
    mbarrier_wait_parity(barriers.q_full(q.stage), q.parity);
    return static_cast<i32>(redux_sync_or_b32(ld_shared_b32(barriers.tile_of(q.stage))));
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

// Each CTA of a cluster loads a part of the rows of every tile of K and V and sends it to all of them, to the same
// place. The full barrier of each counts the bytes of all parts. A buffer must be free in every CTA: consumers arrive
// at the empty barriers of all. Other CTAs' parts may come before this one expects them, but not before its consumers
// have left the buffer.
struct KvLoads {
  static constexpr i32 kRows = kBlockKv / kCluster;
  static constexpr u16 kAllCtas = (1 << kCluster) - 1;
  static_assert(kCluster == 2 && kRows % 8 == 0);  // the swizzle's pattern repeats every 8 rows
  Barriers barriers;

  // Loads into a buffer that the consumers of all CTAs have left.
  __device__ __forceinline__ void load(u32 to, const TensorMap& map, u32 full, i32 head, MapPlace place) const {
    const u32 rank = cluster_cta_rank();
    mbarrier_arrive_expect_tx(full, kKvTileBytes);
    place.row += static_cast<i32>(rank) * kRows;
#pragma unroll
    for (i32 panel = 0; panel < kPanels; ++panel)
      load_box_multicast(to + panel * kKvPanelStride + rank * kRows * kPanelBytes, map, full, kAllCtas,
          panel * kPanelColumns, head, place);
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
    for (; block > tile.blocks.begin; --block) {
      load_k(tile, block - 1);
      load_v(tile, block);
    }
    if (block == tile.blocks.begin) load_v(tile, block);
  }
  mbarrier_wait_parity(barriers.q_empty(q.stage), q.parity ^ 1);
  tiles.publish(-1, barriers, q);
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

  template <bool kMasked>
  __device__ __forceinline__ void update(ScoreFragments& s) {
    must_scale = false;
    float largest[2];  // of a row that does not reach its limit it may be anything below
    float offset[2];
    find_offsets<kMasked>(offset);
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
      raise_row_max<kMasked>(largest);
      set_limit();
      find_offsets<kMasked>(offset);
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

// The part of a warpgroup in a tile: 64 rows, and the blocks of keys that they attend to.
struct RowsOfWarpgroup {
  Sequence sequence;
  i32 first_row;  // in the sequence, of this thread's first row
  KeyBlocks blocks;
  i32 unused_blocks;  // of the tile, behind this warpgroup's
  static constexpr i32 unused_first_blocks = 0;

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
  }
  __device__ __forceinline__ bool any() const { return blocks.begin < blocks.end; }
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
  QueryOperand query;
  ProbabilityOperand probabilities;

  __device__ __forceinline__ void wait_q() const { mbarrier_wait_parity(barriers.q_full(q.stage), q.parity); }
  __device__ __forceinline__ void wait_k() const { mbarrier_wait_parity(barriers.k_full(k.stage), k.parity); }
  __device__ __forceinline__ void wait_v() const { mbarrier_wait_parity(barriers.v_full(v.stage), v.parity); }
  __device__ __forceinline__ void release_q() {
    if (lane_index() == 0) mbarrier_arrive(barriers.q_empty(q.stage));
    q.advance();
  }
  // Each CTA of the cluster sends rows to all of them: a lane for each says that they may come.
  __device__ __forceinline__ void release_k() {
    if (lane_index() < kCluster) mbarrier_arrive_cluster(barriers.k_empty(k.stage), lane_index());
    k.advance();
  }
  __device__ __forceinline__ void release_v() {
    if (lane_index() < kCluster) mbarrier_arrive_cluster(barriers.v_empty(v.stage), lane_index());
    v.advance();
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
  bar_warp_sync();
  consumer.release_k();
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
    wgmma_wait_group<0>();
    wgmma_landed(s);
    consumer.release_k();
    softmax_of<true, kMasked>(rows, block);
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
    wgmma_wait_group<1>();
    wgmma_landed(s);
    consumer.release_k();
    softmax_of<false, kMasked>(rows, block);
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
    wgmma_wait_group<1>();
    wgmma_landed(s);
    consumer.release_k();
    earlier = softmax;
    softmax_of<true, kMasked>(rows, block);
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
  __device__ __forceinline__ void softmax_of(const RowsOfWarpgroup& rows, i32 block) {
    ScoreFunction(args).modify(s);
    if (kMasked) mask_scores(s, args, rows, block);
    if (kFirst)
      softmax.first<kMasked>(s);
    else
      softmax.update<kMasked>(s);
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
      // The blocks of keys from the last one down.
      i32 block = rows.blocks.end - 1;
      mainloop.begin<kPartialBlocks>(rows, block--);
      if (kPartialBlocks)
        for (; block >= rows.blocks.unmasked_end; --block) mainloop.step<true>(rows, block);
      for (; block >= rows.blocks.unmasked_begin; --block) mainloop.step<false>(rows, block);
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
    barriers.init();
  }
  barrier_cluster_sync();
  if (warp < 4) {
    if (kProducerRegisters != 0) setmaxnreg_dec<kProducerRegisters>();
    if (thread_index() == 0) produce(args, barriers, shared);
  } else {
    if (kConsumerRegisters != 0) setmaxnreg_inc<kConsumerRegisters>();
    consume(args, barriers, shared, static_cast<i32>(warp / 4 - 1));
  }
  // What a CTA's producer has under way may be for another CTA of its cluster.
  bar_warp_sync();
  barrier_cluster_sync();
}
static_assert(sizeof(Arguments) == kArgumentBytes, "the host packs the arguments as this compiler lays them out");

}  // namespace attune_b0bbc0bc8ba56092
