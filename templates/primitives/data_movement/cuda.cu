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

struct alignas(8) Vec2F32 { float x, y; };

// Memory that the kernel itself writes: no .nc, whose cache may hold what was there before.
__device__ __forceinline__ float ld_weak_global_f32(const float* from) {
  float r;
  asm volatile("ld.weak.global.f32 %0, [%1];" : "=f"(r) : "l"(from) : "memory");
  return r;
}
__device__ __forceinline__ Vec2F32 ld_weak_global_v2_f32(const float* from) {
  Vec2F32 r;
  asm volatile("ld.weak.global.v2.f32 {%0, %1}, [%2];" : "=f"(r.x), "=f"(r.y) : "l"(from) : "memory");
  return r;
}

__device__ __forceinline__ void st_global_v2_f32(float* to, Vec2F32 x) {
  asm volatile("st.global.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(x.x), "f"(x.y) : "memory");
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
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(r.x), "=f"(r.y), "=f"(r.z), "=f"(r.w) : "r"(from) : "memory");
  return r;
}

// Memory that this kernel itself writes.
__device__ __forceinline__ Vec4F32 ld_weak_global_v4_f32(const float* from) {
  Vec4F32 r;
  asm volatile("ld.weak.global.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(r.x), "=f"(r.y), "=f"(r.z), "=f"(r.w) : "l"(from) : "memory");
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

// Two elements of 16 bits as floats.
__device__ __forceinline__ float cvt_f32_low_bf16(u32 pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float cvt_f32_high_bf16(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }
__device__ __forceinline__ float cvt_f32_low_f16(u32 pair) {
  float r;
  asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %1;\ncvt.f32.f16 %0, low;\n}" : "=f"(r) : "r"(pair));
  return r;
}
__device__ __forceinline__ float cvt_f32_high_f16(u32 pair) {
  float r;
  asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %1;\ncvt.f32.f16 %0, high;\n}" : "=f"(r) : "r"(pair));
  return r;
}

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

__device__ __forceinline__ u64 ld_global_b64(const u64* from) {
  u64 r;
  asm volatile("ld.global.nc.b64 %0, [%1];" : "=l"(r) : "l"(from));
  return r;
}

// Four bytes, each one of the eight of a and b that a nibble of the selector names (a's first), or, with the nibble's highest bit, eight times that byte's
// highest bit.
__device__ __forceinline__ u32 prmt_b32(u32 a, u32 b, u32 selector) {
  u32 r;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(selector));
  return r;
}

// The greater ones of two signed numbers each.
__device__ __forceinline__ u32 max_s16x2(u32 a, u32 b) {
  u32 r;
  asm("max.s16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
}

// The number of the highest bit that is set in x, which is not 0.
__device__ __forceinline__ u32 bfind_b32(u32 x) {
  u32 r;
  asm("bfind.u32 %0, %1;" : "=r"(r) : "r"(x));
  return r;
}

// The bits that are set in any lane's x. The compiler knows that a warp's lanes have the same result, as it does not know of a shuffle's.
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
