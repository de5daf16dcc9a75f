// attune backward bf16 d128 attention-mask=bhqk sm90 q64 kv128 st2 overlap=queued pst2 visible-blocks dq=atomic dq-by=softmax · source affdada96ef85bba
//
// Finds the blocks of which an attention mask shows any pair: bits for a kernel that passes over the others.
//
//   bit i of visible_blocks[head][tile of keys][w]     of block of queries 32·w + i, for each head of each batch entry that the mask has
//
// A warp reads a block, up to the first rows in which it finds a pair, and the 32 warps of a CTA those of a word. CTAs
// stay, and take words as far apart as there are of them.

namespace attune_1f4e521bb8438de9 {

// #region primitives: of PTX, the instructions that this kernel uses
using i32 = int;
using u32 = unsigned int;
using i64 = long long;

constexpr u32 kWarpSize = 32;
constexpr u32 kAllLanes = 0xffffffffu;

__device__ __forceinline__ u32 lane_index() { return threadIdx.x % kWarpSize; }
__device__ __forceinline__ u32 block_index() { return blockIdx.x; }    // of the CTA in the grid

// The same in all lanes of a warp, and known to the compiler as such.
__device__ __forceinline__ u32 warp_index() { return __shfl_sync(kAllLanes, threadIdx.x / kWarpSize, 0); }

__device__ __forceinline__ u32 grid_size() { return gridDim.x; }

struct alignas(16) Vec4 { u32 x, y, z, w; };  // 16 bytes: eight 16-bit elements

// Address of the CTA's dynamic shared memory in the shared window; all shared addresses are such 32-bit numbers.
__device__ __forceinline__ u32 shared_base() {
  extern __shared__ __align__(1024) unsigned char dynamic_shared[];
  return static_cast<u32>(__cvta_generic_to_shared(dynamic_shared));
}

__device__ __forceinline__ u32 ld_global_u8(const void* from) {
  u32 r;
  asm volatile("ld.global.nc.u8 %0, [%1];" : "=r"(r) : "l"(from));
  return r;
}
__device__ __forceinline__ void st_global_b32(void* to, u32 x) {
  asm volatile("st.global.b32 [%0], %1;" ::"l"(to), "r"(x) : "memory");
}

__device__ __forceinline__ void st_shared_b32(u32 to, u32 x) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(x) : "memory");
}
__device__ __forceinline__ u32 ld_shared_b32(u32 from) {
  u32 r;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(r) : "r"(from) : "memory");
  return r;
}

__device__ __forceinline__ Vec4 ld_global_v4_b32(const void* from) {
  Vec4 r;
  asm volatile("ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "l"(from));
  return r;
}

// The bits that are set in any lane's x. The compiler knows that a warp's lanes have the same result, as it does not
// know of a shuffle's.
__device__ __forceinline__ u32 redux_sync_or_b32(u32 x) {
  u32 r;
  asm volatile("redux.sync.or.b32 %0, %1, 0xffffffff;" : "=r"(r) : "r"(x));
  return r;
}

// All threads of the CTA.
__device__ __forceinline__ void bar_sync() { asm volatile("bar.sync 0;" ::: "memory"); }

// Whether x holds in any lane of the warp.
__device__ __forceinline__ bool vote_sync_any(bool x) { return __any_sync(kAllLanes, x); }
// #endregion

struct Arguments {
  i32* visible_blocks;
  const void* attention_mask;
  i64 attention_mask_stride_batch;
  i64 attention_mask_stride_head;
  i64 attention_mask_stride_row;
  i32 seq_q;
  i32 seq_kv;
  i32 attention_mask_batch;
  i32 attention_mask_heads;
  i32 attention_mask_rows;
};
constexpr u32 kArgumentBytes = 64;

constexpr i32 kBlockQ = 64, kBlockKv = 128, kThreads = 1024, kWarps = kThreads / kWarpSize;
constexpr i32 kVectorBytes = 16;                     // that a lane loads at once
constexpr i32 kVectors = kBlockKv / kVectorBytes;    // of a row of a block
constexpr i32 kRowsAtOnce = kWarpSize / kVectors;    // rows of a block that a warp loads at once
constexpr i32 kAtOnce = 4;                           // loads of a lane that are under way together
constexpr u32 kFlag = sizeof(u32);
static_assert(kWarps == 32 && kBlockKv % kVectorBytes == 0 && kVectors <= kWarpSize && kWarps * kFlag == 128);

__device__ __forceinline__ i32 ceil_div(i32 a, i32 b) { return (a + b - 1) / b; }

// Whether any of the bytes [0, count) is one that shows a pair.
__device__ __forceinline__ bool any_of(const char* bytes, i32 count, bool aligned) {
  if (aligned && count >= kVectorBytes) {
    const Vec4 v = ld_global_v4_b32(bytes);
    return (v.x | v.y | v.z | v.w) != 0;
  }
  u32 found = 0;
  for (i32 i = 0; i < count && i < kVectorBytes; ++i) found |= ld_global_u8(bytes + i);
  return found != 0;
}

// Whether a block holds a pair that the mask shows. plane: of a head; its rows are `stride` bytes apart.
__device__ __forceinline__ bool shows_any(const Arguments& args, const char* plane, i64 stride, i32 query_block,
    i32 key_block, bool aligned) {
  const i32 lane = static_cast<i32>(lane_index()), key = key_block * kBlockKv + lane % kVectors * kVectorBytes;
  const i32 first = args.attention_mask_rows == 1 ? 0 : query_block * kBlockQ, left = args.attention_mask_rows - first;
  const i32 rows = left < kBlockQ ? left : kBlockQ, keys = args.seq_kv - key;
  if (query_block * kBlockQ >= args.seq_q || key_block * kBlockKv >= args.seq_kv) return false;
  for (i32 begin = 0; begin < rows; begin += kAtOnce * kRowsAtOnce) {
    bool found = false;
#pragma unroll
    for (i32 i = 0; i < kAtOnce; ++i) {
      const i32 row = begin + i * kRowsAtOnce + lane / kVectors;
      if (lane < kRowsAtOnce * kVectors && row < rows && keys > 0)
        found = any_of(plane + (first + row) * stride + key, keys, aligned) || found;
    }
    if (vote_sync_any(found)) return true;
  }
  return false;
}

extern "C" __global__ void __launch_bounds__(kThreads) attune_visible_blocks(const __grid_constant__ Arguments args) {
  const u32 shared = shared_base(), warp = warp_index(), lane = lane_index();
  const i32 outer = ceil_div(args.seq_kv, kBlockKv), words = ceil_div(args.seq_q, kBlockQ * kWarps),
      heads = args.attention_mask_batch * args.attention_mask_heads;
  const char* const mask = static_cast<const char*>(args.attention_mask);
  const i64 strides = args.attention_mask_stride_batch | args.attention_mask_stride_head |
      args.attention_mask_stride_row;
  const bool aligned = ((strides | reinterpret_cast<i64>(mask)) & (kVectorBytes - 1)) == 0;
  const i64 all = static_cast<i64>(heads) * outer * words;
  for (i64 word = block_index(); word < all; word += grid_size()) {
    const i32 inner = static_cast<i32>(word % words) * kWarps + static_cast<i32>(warp),
        of_head = static_cast<i32>(word / words % outer);
    const i32 head = static_cast<i32>(word / words / outer), batch = head / args.attention_mask_heads;
    const char* const plane = mask + batch * args.attention_mask_stride_batch +
        (head - batch * args.attention_mask_heads) * args.attention_mask_stride_head;
    const bool shows = shows_any(args, plane, args.attention_mask_stride_row, inner, of_head, aligned);
    if (lane == 0) st_shared_b32(shared + kFlag * warp, shows ? 1u << warp : 0u);
    bar_sync();
    if (warp == 0) {
      const u32 bits = redux_sync_or_b32(ld_shared_b32(shared + kFlag * lane));
      if (lane == 0) st_global_b32(args.visible_blocks + word, bits);
    }
    bar_sync();  // all flags have been read
  }
}
static_assert(sizeof(Arguments) == kArgumentBytes, "the host packs the arguments as this compiler lays them out");

}  // namespace attune_1f4e521bb8438de9
