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
