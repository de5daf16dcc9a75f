// attune backward bf16 d128 sm90 q80 kv128 st2 ordered overlap=within dq=atomic dq-by=softmax dq-adds=bulk · source 86022ce019756d27
//
// Converts the fp32 sums of one tile of queries of one head to gradients:
//
//   dQ = scale·sums, rounded
//
// Sums lie transposed. A warp takes 8 rows and four chunks of columns at a time; a lane writes a whole chunk of a row.

namespace attune_a11e6f85ff7ca31d {

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
__device__ __forceinline__ Vec4F32 ld_global_v4_f32(const float* from) {
  Vec4F32 r;
  asm volatile("ld.global.nc.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(r.x), "=f"(r.y), "=f"(r.z), "=f"(r.w) : "l"(from));
  return r;
}

// Two floats rounded to 16 bits: `high` to the upper half (PTX's operand order).
__device__ __forceinline__ u32 cvt_rn_bf16x2_f32(float high, float low) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

// Copies 16 bytes from global to shared memory without registers; only the first `bytes` (0 or 16) are read, the rest
// is zero.
__device__ __forceinline__ void cp_async_cg_16(u32 to, const void* from, u32 bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

// Compute capability 9.0 and newer; `to` is a multiple of 16 bytes.
__device__ __forceinline__ void red_global_add_v4_f32(float* to, Vec4F32 x) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x.x), "f"(x.y), "f"(x.z),
      "f"(x.w) : "memory");
}

// Programmatic dependent launch, compute capability 9.0 and newer: the launch that follows in the stream may begin, if
// it was made so, when each CTA has said the first or has ended; behind the second it sees all that this one wrote.
__device__ __forceinline__ void griddepcontrol_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
// #endregion

struct Arguments {
  float* d_q_sums;
  void* d_q;
  i64 d_q_stride_batch;
  i64 d_q_stride_head;
  i64 d_q_stride_row;
  i32 heads_q;
  i32 seq_q;
  i32 query_tiles;
  float softmax_scale;
};
constexpr u32 kArgumentBytes = 56;

constexpr i32 kTileRows = 80, kHeadDimQk = 128, kElementBytes = 2, kThreads = 128;
constexpr i32 kChunks = kHeadDimQk / 8, kChunksAtOnce = 4, kParts = (kChunks + kChunksAtOnce - 1) / kChunksAtOnce;

// Rows start at multiples of 16 bytes: a chunk is copied without registers and arrives with its cp.async group.
__device__ __forceinline__ void load_chunk(u32 to, const char* from, bool exists) {
  cp_async_cg_16(to, from, exists ? 16 : 0);
}
__device__ __forceinline__ void store_chunk(char* to, Vec4 chunk) { st_global_v4_b32(to, chunk); }
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

// Rows that each batch entry has in the tensors of queries and of keys.
__device__ __forceinline__ i32 stored_queries(const Arguments& args) { return args.seq_q; }
__device__ __forceinline__ i32 stored_queries(const Arguments& args, const Sequence&) { return stored_queries(args); }

// Workspaces hold whole blocks of rows: so many of each head, one batch entry after the other; a sequence's begin with
// those of its head.
template <i32 kRows>
__device__ __forceinline__ i32 blocks_of_queries(const Arguments& args) {
  return (args.seq_q + kRows - 1) / kRows;
}
template <i32 kRows>
__device__ __forceinline__ i32 first_block_of_queries(const Sequence&) {
  return 0;
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

// head counts as workspaces have them, where it has `blocks` tiles, of which the sequence's begin with number
// `first_block`. gradient points to the sequence's first row of that head, of `rows` that are row_bytes apart. Each
// lane has a row's chunk, a column of a fragment: a warp takes 8 rows and four chunks at a time, and reads 64 bytes of
// two fragments at once.
__device__ __forceinline__ void convert(const float* all_sums, float scale, char* gradient, i64 row_bytes, i64 head,
    i32 tile, i32 rows, i32 first_block, i32 blocks) {
  const i32 lane = lane_index(), row_of_fragment = lane % 8;
  const float* sums = all_sums + transposed_sums_place<kTileRows>(head, blocks, first_block + tile);
  for (i32 i = warp_index(); i < kTileRows / 8 * kParts; i += kThreads / kWarpSize) {
    const i32 eight_rows = i / kParts, chunk = i % kParts * kChunksAtOnce + lane / 8,
        row = tile * kTileRows + 8 * eight_rows + row_of_fragment;
    if (chunk >= kChunks || row >= rows) continue;
    const float* column = sums + transposed_fragment_place<kTileRows>(chunk / 2, eight_rows) + row_of_fragment / 2 * 4 +
        chunk % 2 * 2 + row_of_fragment % 2;
    u32 words[4];
#pragma unroll
    for (i32 j = 0; j < 4; ++j)
      words[j] = pack_elements(scale * ld_global_f32(column + 32 * j), scale * ld_global_f32(column + 32 * j + 16));
    store_chunk(gradient + row * row_bytes + 16 * chunk, Vec4{words[0], words[1], words[2], words[3]});
  }
}

extern "C" __global__ void __launch_bounds__(kThreads) attune_backward_convert(const __grid_constant__ Arguments args) {
  griddepcontrol_wait();
  const i32 tile = static_cast<i32>(block_index()) % args.query_tiles,
      batch_head = static_cast<i32>(block_index()) / args.query_tiles;
  const Sequence sequence(args, batch_head / args.heads_q);
  const i32 head = batch_head - sequence.batch * args.heads_q;
  char* d_q = static_cast<char*>(args.d_q) +
              kElementBytes * (sequence.query_offset(args.d_q_stride_batch, args.d_q_stride_row) +
                   head * args.d_q_stride_head);
  convert(args.d_q_sums, args.softmax_scale, d_q, kElementBytes * args.d_q_stride_row, batch_head, tile,
      stored_queries(args, sequence), first_block_of_queries<kTileRows>(sequence), blocks_of_queries<kTileRows>(args));
}
static_assert(sizeof(Arguments) == kArgumentBytes, "the host packs the arguments as this compiler lays them out");

}  // namespace attune_a11e6f85ff7ca31d
