// attune backward bf16 d64 causal packed sm80 q64 kv64 w4 st2 dq=atomic · source 8642f6460002f183
//
// Converts the fp32 sums of one tile of queries of one head to gradients:
//
//   dQ = scale·sums, rounded
//
// A warp takes 16 rows and four chunks of columns at a time; a lane writes whole chunks of a row.

namespace attune_ff7f8811478e576f {

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

// Adds to memory that other CTAs add to as well; an element is added to whole, four of them in no order.
__device__ __forceinline__ void red_global_add_f32(float* to, float x) {
  asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(to), "f"(x) : "memory");
}
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
  const i32* seqused_q;
  const i32* seqused_kv;
  const i32* cu_seqlens_q;
  const i32* cu_seqlens_kv;
  i32 batch;
  i32 seq_kv;
  float softmax_scale;
};
constexpr u32 kArgumentBytes = 104;

constexpr i32 kTileRows = 64, kHeadDimQk = 64, kElementBytes = 2, kThreads = 128;
constexpr i32 kChunks = kHeadDimQk / 8, kChunksAtOnce = 4, kParts = (kChunks + kChunksAtOnce - 1) / kChunksAtOnce;

// Rows start at multiples of 16 bytes: a chunk is copied without registers and arrives with its cp.async group.
__device__ __forceinline__ void load_chunk(u32 to, const char* from, bool exists) {
  cp_async_cg_16(to, from, exists ? 16 : 0);
}
__device__ __forceinline__ void store_chunk(char* to, Vec4 chunk) { st_global_v4_b32(to, chunk); }
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

// Whose rows a tile works on. Here the sequences lie one behind the other: as the call says in the device's memory,
// sequence b is the rows from cu_seqlens[b] up to, and without, cu_seqlens[b + 1], of which the first ones count, as
// many as the call says, all of them where it says nothing. What lies behind, and what lies in other sequences, reaches
// no result. Rows behind the last sequence are stored with it and do not count.
struct Sequence {
  i32 batch, first_query, queries, first_key, keys;
  i32 stored_queries, stored_keys;  // also those that do not count

  Sequence() = default;
  __device__ __forceinline__ Sequence(const Arguments& args, i32 batch) : batch(batch) {
    const bool is_last = batch == args.batch - 1;
    const i32 end_of_queries = begin_of(args.cu_seqlens_q, batch + 1, args.seq_q),
        end_of_keys = begin_of(args.cu_seqlens_kv, batch + 1, args.seq_kv);
    first_query = begin_of(args.cu_seqlens_q, batch, args.seq_q);
    queries = used_rows(args.seqused_q, batch, rows_between(first_query, end_of_queries));
    stored_queries = rows_between(first_query, is_last ? args.seq_q : end_of_queries);
    first_key = begin_of(args.cu_seqlens_kv, batch, args.seq_kv);
    keys = used_rows(args.seqused_kv, batch, rows_between(first_key, end_of_keys));
    stored_keys = rows_between(first_key, is_last ? args.seq_kv : end_of_keys);
  }

  // The elements between the first one of a tensor and the first one of the sequence, for tensors of queries and of
  // keys.
  __device__ __forceinline__ i64 query_offset(i64 /*stride_batch*/, i64 stride_row) const {
    return first_query * stride_row;
  }
  __device__ __forceinline__ i64 key_offset(i64 /*stride_batch*/, i64 stride_row) const {
    return first_key * stride_row;
  }
  // Those before its plane of a tensor of pairs.
  __device__ __forceinline__ i64 pair_offset(i64 stride_batch) const { return batch * stride_batch; }

  // Whatever the numbers say, no row that is not there is touched.
  __device__ __forceinline__ static i32 begin_of(const i32* begins, i32 batch, i32 all) {
    const i32 row = ld_global_i32(begins + batch);
    return row < 0 ? 0 : row < all ? row : all;
  }

 private:
  __device__ __forceinline__ static i32 rows_between(i32 begin, i32 end) { return begin < end ? end - begin : 0; }
  __device__ __forceinline__ static i32 used_rows(const i32* counts, i32 batch, i32 stored) {
    if (counts == nullptr) return stored;
    const i32 rows = ld_global_i32(counts + batch);
    return rows < 0 ? 0 : rows < stored ? rows : stored;
  }
};
__device__ __forceinline__ i32 stored_queries(const Arguments&, const Sequence& sequence) {
  return sequence.stored_queries;
}
__device__ __forceinline__ i32 stored_keys(const Arguments&, const Sequence& sequence) { return sequence.stored_keys; }

// A head's tiles of `rows` rows each, of all sequences, and so the blocks of rows that it has in workspaces. Sequence
// b's begin at number cu_seqlens[b] / rows + b, those of the first one at 0: so many are enough for the ones before,
// whatever their lengths, and no sum over them is needed. Some numbers are of no tile: there is no row from their first
// one on.
__device__ __forceinline__ i32 first_tile_of(i32 sequence, i32 begin, i32 rows) {
  return sequence == 0 ? 0 : begin / rows + sequence;
}

// The lanes of a warp look together, all for the same number: each at one of the sequences that are in question, or of
// as many as there are lanes that divide them. So few loads wait for each other.
struct TileOfSequence {
  i32 batch, tile;

  __device__ __forceinline__ TileOfSequence(const i32* begins, i32 sequences, i32 all, i32 number, i32 rows) {
    const auto first_tile = [&](i32 sequence) {
      return first_tile_of(sequence, Sequence::begin_of(begins, sequence, all), rows);
    };
    batch = 0;             // the last one whose first tile is not behind this one, or a sequence before that
    i32 left = sequences;  // in question, from `batch` on
    while (left > 1) {
      const i32 apart = (left - 1) / kWarpSize + 1, place = static_cast<i32>(lane_index()) * apart;
      const bool begun = place < left && first_tile(batch + place) <= number;
      const i32 last = apart * static_cast<i32>(bfind_b32(redux_sync_or_b32(begun ? 1u << lane_index() : 0)));
      batch += last;
      left = left - last < apart ? left - last : apart;
    }
    tile = number - first_tile(batch);
  }
};
template <i32 kRows>
__device__ __forceinline__ i32 blocks_of_queries(const Arguments& args) {
  return args.seq_q / kRows + args.batch;
}
template <i32 kRows>
__device__ __forceinline__ i32 first_block_of_queries(const Sequence& sequence) {
  return first_tile_of(sequence.batch, sequence.first_query, kRows);
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

extern "C" __global__ void __launch_bounds__(kThreads) attune_backward_convert(const __grid_constant__ Arguments args) {
  const i32 number = static_cast<i32>(block_index()) % args.query_tiles,
      batch_head = static_cast<i32>(block_index()) / args.query_tiles;
  const TileOfSequence found(args.cu_seqlens_q, args.batch, args.seq_q, number, kTileRows);
  const Sequence sequence(args, found.batch);
  const i32 tile = found.tile, head = batch_head;
  char* d_q = static_cast<char*>(args.d_q) +
              kElementBytes * (sequence.query_offset(args.d_q_stride_batch, args.d_q_stride_row) +
                   head * args.d_q_stride_head);
  convert(args.d_q_sums, args.softmax_scale, d_q, kElementBytes * args.d_q_stride_row, batch_head, tile,
      stored_queries(args, sequence), first_block_of_queries<kTileRows>(sequence), blocks_of_queries<kTileRows>(args));
}
static_assert(sizeof(Arguments) == kArgumentBytes, "the host packs the arguments as this compiler lays them out");

}  // namespace attune_ff7f8811478e576f
