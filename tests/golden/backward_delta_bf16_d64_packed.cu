// attune backward bf16 d64 causal packed sm80 q64 kv64 w4 st2 · source 51c61c063deaba22
//
// Computes for each query what all its keys need for their gradients:
//
//   delta = rowsum(dO ∘ O) - dLSE,   and LSE·log2(e)
//
// A query that sees no key, and a row that pads a block of queries, gets delta = 0 and LSE = +inf: its P and dS are 0.
// kRowLanes lanes share a row; sums are in fp32.

namespace attune_9bafd230e77b85a2 {

// #region primitives: of PTX, the instructions that this kernel uses
using i32 = int;
using u16 = unsigned short;
using u32 = unsigned int;
using i64 = long long;

constexpr u32 kWarpSize = 32;
constexpr u32 kAllLanes = 0xffffffffu;

__device__ __forceinline__ float negative_infinity() { return __int_as_float(0xff800000); }
__device__ __forceinline__ u32 thread_index() { return threadIdx.x; }  // in the CTA
__device__ __forceinline__ u32 lane_index() { return threadIdx.x % kWarpSize; }
__device__ __forceinline__ u32 block_index() { return blockIdx.x; }    // of the CTA in the grid

// The same in all lanes of a warp, and known to the compiler as such.
__device__ __forceinline__ u32 warp_index() { return __shfl_sync(kAllLanes, threadIdx.x / kWarpSize, 0); }

struct alignas(16) Vec4 { u32 x, y, z, w; };  // 16 bytes: eight 16-bit elements

__device__ __forceinline__ void st_global_b32(void* to, u32 x) {
  asm volatile("st.global.b32 [%0], %1;" ::"l"(to), "r"(x) : "memory");
}
__device__ __forceinline__ void st_global_f32(void* to, float x) {
  asm volatile("st.global.f32 [%0], %1;" ::"l"(to), "f"(x) : "memory");
}
__device__ __forceinline__ void st_global_v4_b32(void* to, Vec4 x) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
}

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

__device__ __forceinline__ Vec4 ld_global_v4_b32(const void* from) {
  Vec4 r;
  asm volatile("ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "l"(from));
  return r;
}

__device__ __forceinline__ double cvt_f64_bf16(u16 x) {
  return static_cast<double>(__uint_as_float(static_cast<u32>(x) << 16));
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

// NaN where one of the two is.
__device__ __forceinline__ float max_nan_f32(float a, float b) {
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}

// Whether x holds in any lane of the warp.
__device__ __forceinline__ bool vote_sync_any(bool x) { return __any_sync(kAllLanes, x); }
// #endregion

struct Arguments {
  void* o;
  const void* d_o;
  float* lse;
  const float* d_lse;
  float* statistics;
  i64 o_stride_batch;
  i64 o_stride_head;
  i64 o_stride_row;
  i64 d_o_stride_batch;
  i64 d_o_stride_head;
  i64 d_o_stride_row;
  i32 heads_q;
  i32 seq_q;
  i32 query_tiles;
  const i32* seqused_q;
  const i32* seqused_kv;
  const i32* cu_seqlens_q;
  const i32* cu_seqlens_kv;
  i32 seq_kv;
  i32 batch;
  u32* key_tile_list;
};
constexpr u32 kArgumentBytes = 152;

constexpr i32 kHeadDimV = 64, kElementBytes = 2, kRows = 64, kThreads = 128, kRowLanes = 8;
constexpr i32 kChunks = kHeadDimV / 8, kRowsAtOnce = kThreads / kRowLanes;
constexpr float kLog2E = 1.44269504088896340736f, kLargestFloat = 0x1.fffffep127f;
static_assert(kRows % kRowsAtOnce == 0 && kChunks <= kRowLanes);

// Eight elements of a row that starts at a multiple of 16 bytes.
__device__ __forceinline__ Vec4 read_chunk(const char* from) { return ld_global_v4_b32(from); }

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
__device__ __forceinline__ i32 query_count(const Arguments&, const Sequence& sequence) { return sequence.queries; }
__device__ __forceinline__ i32 stored_queries(const Arguments&, const Sequence& sequence) {
  return sequence.stored_queries;
}
__device__ __forceinline__ i32 stored_keys(const Arguments&, const Sequence& sequence) { return sequence.stored_keys; }

// The rows of a head in a tensor without columns, such as LSE, which is packed: (heads, queries of all sequences); and
// the place of a row there.
__device__ __forceinline__ i64 packed_query_row(const Arguments& args, const Sequence& sequence, i32 head, i64 row) {
  return static_cast<i64>(head) * args.seq_q + sequence.first_query + row;
}

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
__device__ __forceinline__ i32 blocks_of_keys(const Arguments& args) {
  return args.seq_kv / kRows + args.batch;
}
constexpr i32 kBlockKv = 64;
// The list of the tiles of keys that packed sequences have, in the workspace: whose they are, in the order in which
// CTAs take those of a head, and how many. kListedWords words each, of which the last ones are those of the first tile
// alone, or of none.
constexpr i32 kListedWords = 12, kListedCount = 8;
__device__ __forceinline__ void store_listed_tile(u32* list, i32 place, const Sequence& sequence, i32 tile) {
  u32* const to = list + kListedWords * static_cast<i64>(place);
  st_global_v4_b32(to,
      {static_cast<u32>(tile), static_cast<u32>(sequence.batch), static_cast<u32>(sequence.first_query),
      static_cast<u32>(sequence.queries)});
  st_global_v4_b32(to + 4,
      {static_cast<u32>(sequence.stored_queries), static_cast<u32>(sequence.first_key), static_cast<u32>(sequence.keys),
      static_cast<u32>(sequence.stored_keys)});
}

struct ListedTile {
  Sequence sequence;
  i32 tile;

  __device__ __forceinline__ ListedTile(const u32* list, i32 place) {
    const u32* const from = list + kListedWords * static_cast<i64>(place);
    const Vec4 first = ld_global_v4_b32(from), second = ld_global_v4_b32(from + 4);
    tile = static_cast<i32>(first.x);
    sequence.batch = static_cast<i32>(first.y);
    sequence.first_query = static_cast<i32>(first.z);
    sequence.queries = static_cast<i32>(first.w);
    sequence.stored_queries = static_cast<i32>(second.x);
    sequence.first_key = static_cast<i32>(second.y);
    sequence.keys = static_cast<i32>(second.z);
    sequence.stored_keys = static_cast<i32>(second.w);
  }
};
__device__ __forceinline__ i32 listed_tiles(const Arguments& args) {
  return static_cast<i32>(ld_global_v4_b32(args.key_tile_list + kListedCount).x);
}

// Sums that end at `most`: of sequences that begin before the one before them has ended there may be more tiles than
// any number says.
__device__ __forceinline__ u32 sum_up_to(u32 most, u32 x, u32 y) { return x + y < most ? x + y : most; }
__device__ __forceinline__ i32 sum_of_warp_up_to(u32 most, u32 x) {
  x = sum_up_to(most, x, shfl_sync_bfly_b32<16>(x));
  x = sum_up_to(most, x, shfl_sync_bfly_b32<8>(x));
  x = sum_up_to(most, x, shfl_sync_bfly_b32<4>(x));
  x = sum_up_to(most, x, shfl_sync_bfly_b32<2>(x));
  return static_cast<i32>(sum_up_to(most, x, shfl_sync_bfly_b32<1>(x)));
}

// Whether a sequence begins before the one before it, for a whole warp.
__device__ __forceinline__ bool any_falls(const Arguments& args, const i32* begins, i32 all) {
  bool falls = false;
  for (i32 batch = static_cast<i32>(lane_index()); batch < args.batch; batch += kWarpSize)
    falls = falls || Sequence::begin_of(begins, batch, all) > Sequence::begin_of(begins, batch + 1, all);
  return vote_sync_any(falls);
}

// Puts the tiles of keys of one sequence on the list, for a whole warp: behind those of sequences with more queries,
// whose tiles take longer and are taken first.
__device__ __forceinline__ void list_key_tiles(const Arguments& args, i32 batch) {
  const auto tiles_of = [](const Sequence& sequence) {
    return sequence.stored_keys / kBlockKv + (sequence.stored_keys % kBlockKv != 0);
  };
  const i32 queries = Sequence(args, batch).queries;
  const u32 places = static_cast<u32>(blocks_of_keys<kBlockKv>(args));
  u32 all_of_lane = 0, before_of_lane = 0;
  for (i32 other = static_cast<i32>(lane_index()); other < args.batch; other += kWarpSize) {
    const Sequence one(args, other);
    const u32 tiles = static_cast<u32>(tiles_of(one));
    all_of_lane = sum_up_to(places, all_of_lane, tiles);
    if (one.queries > queries || (one.queries == queries && other < batch))
      before_of_lane = sum_up_to(places, before_of_lane, tiles);
  }
  const i32 all = sum_of_warp_up_to(places, all_of_lane), before = sum_of_warp_up_to(places, before_of_lane);
  const Sequence sequence(args, batch);  // looked up again: registers are short
  for (i32 tile = static_cast<i32>(lane_index()); tile < tiles_of(sequence); tile += kWarpSize)
    if (before + tile < static_cast<i32>(places)) store_listed_tile(args.key_tile_list, before + tile, sequence, tile);
  if (batch != 0) return;
  // Sequences that overlap share blocks of queries, whose turns they would wait for without an end: such have no tiles.
  const bool overlap = any_falls(args, args.cu_seqlens_q, args.seq_q) ||
      any_falls(args, args.cu_seqlens_kv, args.seq_kv);
  if (lane_index() == 0) st_global_b32(args.key_tile_list + kListedCount, overlap ? 0 : static_cast<u32>(all));
}

__device__ __forceinline__ float low_element(u32 pair) {
  return static_cast<float>(cvt_f64_bf16(static_cast<u16>(pair)));
}
__device__ __forceinline__ float high_element(u32 pair) {
  return static_cast<float>(cvt_f64_bf16(static_cast<u16>(pair >> 16)));
}

__device__ __forceinline__ float dot_of_chunks(Vec4 a, Vec4 b) {
  const u32 a_pairs[4] = {a.x, a.y, a.z, a.w}, b_pairs[4] = {b.x, b.y, b.z, b.w};
  float sum = 0;
#pragma unroll
  for (i32 i = 0; i < 4; ++i) {
    sum = fma_rn_f32(low_element(a_pairs[i]), low_element(b_pairs[i]), sum);
    sum = fma_rn_f32(high_element(a_pairs[i]), high_element(b_pairs[i]), sum);
  }
  return sum;
}

extern "C" __global__ void __launch_bounds__(kThreads, 16)
    attune_backward_delta(const __grid_constant__ Arguments args) {
  const i32 tiles = args.query_tiles, tile = static_cast<i32>(block_index()) % tiles,
      batch_head = static_cast<i32>(block_index()) / tiles;
  const TileOfSequence found(args.cu_seqlens_q, args.batch, args.seq_q, tile, kRows);
  const Sequence sequence(args, found.batch);
  const i32 head = batch_head;
  const char* o = static_cast<const char*>(args.o) +
      kElementBytes * (sequence.query_offset(args.o_stride_batch, args.o_stride_row) + head * args.o_stride_head);
  const char* d_o = static_cast<const char*>(args.d_o) +
      kElementBytes * (sequence.query_offset(args.d_o_stride_batch, args.d_o_stride_row) + head * args.d_o_stride_head);
  const i32 chunk = static_cast<i32>(thread_index()) % kRowLanes;
// Four rows of a thread are under way at once; of eight ptxas spills the pieces.
#pragma unroll 4
  for (i32 i = 0; i < kRows / kRowsAtOnce; ++i) {
    const i32 query = found.tile * kRows + i * kRowsAtOnce + static_cast<i32>(thread_index()) / kRowLanes;
    const bool exists = query < query_count(args, sequence);
    float sum = 0;
    if (exists && chunk < kChunks)
      sum = dot_of_chunks(read_chunk(o + query * args.o_stride_row * kElementBytes + 16 * chunk),
          read_chunk(d_o + query * args.d_o_stride_row * kElementBytes + 16 * chunk));
    if (kRowLanes > 16) sum += shfl_sync_bfly_f32<16>(sum);
    if (kRowLanes > 8) sum += shfl_sync_bfly_f32<8>(sum);
    if (kRowLanes > 4) sum += shfl_sync_bfly_f32<4>(sum);
    if (kRowLanes > 2) sum += shfl_sync_bfly_f32<2>(sum);
    if (kRowLanes > 1) sum += shfl_sync_bfly_f32<1>(sum);
    if (chunk != 0) continue;
    const i64 row = packed_query_row(args, sequence, head, query);
    const float lse = exists ? ld_global_f32(args.lse + row) : negative_infinity();
    const bool sees = lse != negative_infinity();
    // Finite below, lest a hidden score, which is -inf, met its negative.
    const float lse_log2 = sees ? max_nan_f32(lse * kLog2E, -kLargestFloat) : -negative_infinity();
    const float d_lse = sees && args.d_lse != nullptr ? ld_global_f32(args.d_lse + row) : 0.0f;
    float* statistics = args.statistics +
        2 * ((static_cast<i64>(batch_head) * tiles + tile) * kRows + query - found.tile * kRows);
    st_global_f32(statistics, lse_log2);
    st_global_f32(statistics + 1, sees ? sum - d_lse : 0.0f);
  }
  // A head has at least as many tiles as there are sequences.
  if (static_cast<i32>(block_index()) < args.batch && warp_index() == 0)
    list_key_tiles(args, static_cast<i32>(block_index()));
}
static_assert(sizeof(Arguments) == kArgumentBytes, "the host packs the arguments as this compiler lays them out");

}  // namespace attune_9bafd230e77b85a2
