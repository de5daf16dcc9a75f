// attune forward bf16 d64 bias=bhqk sm90 q128 kv64 st2 overlap=within pst1 copied-pairs · source e03ccf3aac7c9b04
//
// Copies a tensor of pairs to rows that begin at multiples of 16 bytes, as tensor maps want them, batch entry after
// batch entry and head after head. A warp copies a row at a time; CTAs stay, and take rows as far apart as there are
// warps. What fills a row's last bytes is zero.

namespace attune_1901fc371f4c0931 {

// #region primitives: of PTX, the instructions that this kernel uses
using i32 = int;
using u16 = unsigned short;
using u32 = unsigned int;
using i64 = long long;
using u64 = unsigned long long;

constexpr u32 kWarpSize = 32;
constexpr u32 kAllLanes = 0xffffffffu;

__device__ __forceinline__ u32 lane_index() { return threadIdx.x % kWarpSize; }
__device__ __forceinline__ u32 block_index() { return blockIdx.x; }    // of the CTA in the grid

// The same in all lanes of a warp, and known to the compiler as such.
__device__ __forceinline__ u32 warp_index() { return __shfl_sync(kAllLanes, threadIdx.x / kWarpSize, 0); }

__device__ __forceinline__ u32 grid_size() { return gridDim.x; }

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

__device__ __forceinline__ float ld_global_f32(const float* from) {
  float r;
  asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(r) : "l"(from));
  return r;
}

__device__ __forceinline__ u32 f32_to_bits(float x) { return __float_as_uint(x); }
// #endregion

struct Arguments {
  u32* bias_copy;
  const void* bias;
  i64 bias_stride_batch;
  i64 bias_stride_head;
  i64 bias_stride_row;
  i32 seq_kv;
  i32 bias_batch;
  i32 bias_heads;
  i32 bias_rows;
};
constexpr u32 kArgumentBytes = 56;

constexpr i32 kBytes = 2, kOfWord = 4 / kBytes;  // of an element; elements
constexpr i32 kThreads = 256, kWarps = kThreads / kWarpSize;
constexpr i32 kAhead = 4;  // words that a lane loads before it stores them

__device__ __forceinline__ u32 word_of(const char* row, i32 word, i32 elements) {
  u32 bits = 0;
#pragma unroll
  for (i32 i = 0; i < kOfWord; ++i) {
    const i32 element = word * kOfWord + i;
    if (element >= elements) break;
    const char* from = row + kBytes * static_cast<i64>(element);
    if (kBytes == 4) return f32_to_bits(ld_global_f32(reinterpret_cast<const float*>(from)));
    bits |= (kBytes == 2 ? ld_global_b16(from) : ld_global_u8(from)) << 8 * kBytes * i;
  }
  return bits;
}

extern "C" __global__ void __launch_bounds__(kThreads) attune_copy_bias(const __grid_constant__ Arguments args) {
  const u32 heads = static_cast<u32>(args.bias_heads), of_head = static_cast<u32>(args.bias_rows);
  const u64 rows = static_cast<u64>(args.bias_batch) * heads * of_head;
  const i32 words = (kBytes * args.seq_kv + 15) / 16 * 4;
  for (u64 number = static_cast<u64>(block_index()) * kWarps + warp_index(); number < rows;
      number += static_cast<u64>(grid_size()) * kWarps) {
    const u64 plane = number / of_head;
    const i64 row = static_cast<i64>(number - plane * of_head), batch = static_cast<i64>(plane / heads),
        head = static_cast<i64>(plane) - batch * heads;
    const char* const from =
        static_cast<const char*>(args.bias) +
            kBytes * (batch * args.bias_stride_batch + head * args.bias_stride_head + row * args.bias_stride_row);
    u32* const to = args.bias_copy + number * static_cast<u64>(words);
    for (i32 begin = static_cast<i32>(lane_index()); begin < words; begin += kAhead * static_cast<i32>(kWarpSize)) {
      u32 loaded[kAhead];
#pragma unroll
      for (i32 i = 0; i < kAhead; ++i) loaded[i] = word_of(from, begin + i * static_cast<i32>(kWarpSize), args.seq_kv);
#pragma unroll
      for (i32 i = 0; i < kAhead; ++i) {
        const i32 word = begin + i * static_cast<i32>(kWarpSize);
        if (word < words) st_global_b32(to + word, loaded[i]);
      }
    }
  }
}
static_assert(sizeof(Arguments) == kArgumentBytes, "the host packs the arguments as this compiler lays them out");

}  // namespace attune_1901fc371f4c0931
