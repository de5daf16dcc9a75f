// attune backward fp16 d72 sm80 q64 kv64 w4 st1 kv-grad-per-query-head · source 78c179b972eab997
//
// Converts the fp32 sums of one tile of keys of one head to gradients:
//
//   dK = scale·sums, rounded
//   dV = sums, rounded
//
// A warp takes 16 rows and four chunks of columns at a time; a lane writes whole chunks of a row.

namespace attune_44670be428cfd221 {

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

struct alignas(16) Vec4 { u32 x, y, z, w; };  // 16 bytes: eight 16-bit elements

__device__ __forceinline__ void st_global_v4_b32(void* to, Vec4 x) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
}

struct alignas(16) Vec4F32 { float x, y, z, w; };

__device__ __forceinline__ float ld_global_f32(const float* from) {
  float r;
  asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(r) : "l"(from));
  return r;
}

// Two floats rounded to 16 bits: `high` to the upper half (PTX's operand order).
__device__ __forceinline__ u32 cvt_rn_f16x2_f32(float high, float low) {
  u32 r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

// Copies 16 bytes from global to shared memory without registers; only the first `bytes` (0 or 16) are read, the rest
// is zero.
__device__ __forceinline__ void cp_async_cg_16(u32 to, const void* from, u32 bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

// x of the lane whose index differs in the bits of kMask.
template <int kMask>
__device__ __forceinline__ u32 shfl_sync_bfly_b32(u32 x) {
  u32 r;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=r"(r) : "r"(x), "n"(kMask));
  return r;
}

// Adds to memory that other CTAs add to as well; an element is added to whole, four of them in no order.
__device__ __forceinline__ void red_global_add_f32(float* to, float x) {
  asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(to), "f"(x) : "memory");
}
// #endregion

struct Arguments {
  float* d_k_sums;
  float* d_v_sums;
  void* d_k;
  void* d_v;
  i64 d_k_stride_batch;
  i64 d_k_stride_head;
  i64 d_k_stride_row;
  i64 d_v_stride_batch;
  i64 d_v_stride_head;
  i64 d_v_stride_row;
  i32 heads_kv;
  i32 seq_kv;
  i32 key_tiles;
  float softmax_scale;
};
constexpr u32 kArgumentBytes = 96;

constexpr i32 kTileRows = 64, kHeadDimQk = 72, kElementBytes = 2, kThreads = 128;
constexpr i32 kChunks = kHeadDimQk / 8, kChunksAtOnce = 4, kParts = (kChunks + kChunksAtOnce - 1) / kChunksAtOnce;

// Rows start at multiples of 16 bytes: a chunk is copied without registers and arrives with its cp.async group.
__device__ __forceinline__ void load_chunk(u32 to, const char* from, bool exists) {
  cp_async_cg_16(to, from, exists ? 16 : 0);
}
__device__ __forceinline__ void store_chunk(char* to, Vec4 chunk) { st_global_v4_b32(to, chunk); }
// Two elements of the problem's type in a register.
__device__ __forceinline__ u32 pack_elements(float low, float high) { return cvt_rn_f16x2_f32(high, low); }
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

// Rows that each batch entry has in the tensors of queries and of keys.
__device__ __forceinline__ i32 stored_keys(const Arguments& args) { return args.seq_kv; }
__device__ __forceinline__ i32 stored_keys(const Arguments& args, const Sequence&) { return stored_keys(args); }

// Workspaces hold whole blocks of rows: so many of each head, one batch entry after the other; a sequence's begin with
// those of its head.
template <i32 kRows>
__device__ __forceinline__ i32 blocks_of_keys(const Arguments& args) {
  return (args.seq_kv + kRows - 1) / kRows;
}
template <i32 kRows>
__device__ __forceinline__ i32 first_block_of_keys(const Sequence&) {
  return 0;
}
// A gradient's sums of 16 rows and 8 columns, as the accumulators of a warp hold it: those of all lanes lie together,
// so that each of four adds touches 128 bytes in a row.
__device__ __forceinline__ void add_sums(float* sums, const float (&acc)[4]) {
#pragma unroll
  for (i32 i = 0; i < 4; ++i) red_global_add_f32(sums + 32 * i + lane_index(), acc[i]);
}
__device__ __forceinline__ Vec4F32 load_sums(const float* sums) {
  const float* lanes = sums + lane_index();
  return {ld_global_f32(lanes), ld_global_f32(lanes + 32), ld_global_f32(lanes + 64), ld_global_f32(lanes + 96)};
}
constexpr i32 kSumsOfFragment = 16 * 8;  // floats

// The place of the sums of a fragment: 16 rows from `row` on, and the columns of a chunk. head counts as workspaces
// have them, and has `padded` rows, whole tiles.
__device__ __forceinline__ i64 sums_place(i64 head, i32 padded, i32 row, i32 chunk) {
  return ((head * padded + row) / 16 * kChunks + chunk) * kSumsOfFragment;
}

// head counts as workspaces have them, where it has `blocks` tiles, of which the sequence's begin with number
// `first_block`. gradient points to the sequence's first row of that head, of `rows` that are row_bytes apart.
__device__ __forceinline__ void convert(const float* all_sums, float scale, char* gradient, i64 row_bytes, i64 head,
    i32 tile, i32 rows, i32 first_block, i32 blocks) {
  const i32 lane = lane_index();
  for (i32 i = warp_index(); i < kTileRows / 16 * kParts; i += kThreads / kWarpSize) {
    const i32 first_row = tile * kTileRows + i / kParts * 16, first_chunk = i % kParts * kChunksAtOnce;
    const float* sums = all_sums +
        sums_place(head, blocks * kTileRows, first_block * kTileRows + first_row, first_chunk);
    u32 upper[4] = {}, lower[4] = {};
#pragma unroll
    for (i32 j = 0; j < kChunksAtOnce; ++j) {
      if (kChunks % kChunksAtOnce != 0 && first_chunk + j >= kChunks) break;
      const Vec4F32 acc = load_sums(sums + j * kSumsOfFragment);
      upper[j] = pack_elements(scale * acc.x, scale * acc.y);
      lower[j] = pack_elements(scale * acc.z, scale * acc.w);
    }
    transpose_in_quad(upper);
    transpose_in_quad(lower);
    const i32 chunk = first_chunk + lane % 4, row = first_row + lane / 4;
    if (kChunks % kChunksAtOnce != 0 && chunk >= kChunks) continue;
    char* to = gradient + row * row_bytes + 16 * chunk;
    if (row < rows) store_chunk(to, Vec4{upper[0], upper[1], upper[2], upper[3]});
    if (row + 8 < rows) store_chunk(to + 8 * row_bytes, Vec4{lower[0], lower[1], lower[2], lower[3]});
  }
}

extern "C" __global__ void __launch_bounds__(kThreads)
    attune_backward_convert_keys(const __grid_constant__ Arguments args) {
  const i32 tile = static_cast<i32>(block_index()) % args.key_tiles,
      batch_head = static_cast<i32>(block_index()) / args.key_tiles;
  const Sequence sequence(args, batch_head / args.heads_kv);
  const i32 head = batch_head - sequence.batch * args.heads_kv;
  char* d_k = static_cast<char*>(args.d_k) +
              kElementBytes * (sequence.key_offset(args.d_k_stride_batch, args.d_k_stride_row) +
                   head * args.d_k_stride_head);
  convert(args.d_k_sums, args.softmax_scale, d_k, kElementBytes * args.d_k_stride_row, batch_head, tile,
      stored_keys(args, sequence), first_block_of_keys<kTileRows>(sequence), blocks_of_keys<kTileRows>(args));
  char* d_v = static_cast<char*>(args.d_v) +
              kElementBytes * (sequence.key_offset(args.d_v_stride_batch, args.d_v_stride_row) +
                   head * args.d_v_stride_head);
  convert(args.d_v_sums, 1.0f, d_v, kElementBytes * args.d_v_stride_row, batch_head, tile, stored_keys(args, sequence),
      first_block_of_keys<kTileRows>(sequence), blocks_of_keys<kTileRows>(args));
}
static_assert(sizeof(Arguments) == kArgumentBytes, "the host packs the arguments as this compiler lays them out");

}  // namespace attune_44670be428cfd221
