// attune backward bf16 d64 causal dropout sm80 q64 kv64 w4 st2 · source 1370fd7347a18a36
//
// dQ of one tile of queries of one head, on mma.sync (compute capability 8.0 and newer):
//
//   for each block of keys:   S = Q Kᵀ           P = exp2(c S - LSE·log2(e)), masked
//                             dP = dO Vᵀ         dS = P ∘ (dP - delta)
//                             dQ = dQ + dS K
//   dQ = scale·dQ,   c = scale·log2(e)
//
// What dropout keeps of P counts, divided by the share of it, in dS as dP.
//
// Each warp owns 16 queries and all keys of a block: S, dP, dS and dQ stay in its registers.
//
// shared memory, bytes:
//        0  Q  [64][64]   later dQ
//     8192  dO  [64][64]
//    16384  K  [2][64][64]
//    32768  V  [2][64][64]
//    49152  end

namespace attune_ef344ce4cd6b4163 {

// #region primitives: of PTX, the instructions that this kernel uses
using i32 = int;
using u32 = unsigned int;
using i64 = long long;
using u64 = unsigned long long;

constexpr u32 kWarpSize = 32;
constexpr u32 kAllLanes = 0xffffffffu;

__device__ __forceinline__ u32 thread_index() { return threadIdx.x; }  // in the CTA
__device__ __forceinline__ u32 lane_index() { return threadIdx.x % kWarpSize; }
__device__ __forceinline__ u32 block_index() { return blockIdx.x; }    // of the CTA in the grid

// The same in all lanes of a warp, and known to the compiler as such.
__device__ __forceinline__ u32 warp_index() { return __shfl_sync(kAllLanes, threadIdx.x / kWarpSize, 0); }

struct alignas(16) Vec4 { u32 x, y, z, w; };  // 16 bytes: eight 16-bit elements

// Address of the CTA's dynamic shared memory in the shared window; all shared addresses are such 32-bit numbers.
__device__ __forceinline__ u32 shared_base() {
  extern __shared__ __align__(1024) unsigned char dynamic_shared[];
  return static_cast<u32>(__cvta_generic_to_shared(dynamic_shared));
}

__device__ __forceinline__ void st_global_v4_b32(void* to, Vec4 x) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
}

__device__ __forceinline__ void st_shared_b32(u32 to, u32 x) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(x) : "memory");
}
__device__ __forceinline__ Vec4 ld_shared_v4_b32(u32 from) {
  Vec4 r;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "r"(from)
      : "memory");
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

__device__ __forceinline__ void cp_async_commit_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most kPending of this thread's youngest groups are under way.
template <int kPending>
__device__ __forceinline__ void cp_async_wait_group() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

__device__ __forceinline__ u64 ld_global_b64(const u64* from) {
  u64 r;
  asm volatile("ld.global.nc.b64 %0, [%1];" : "=l"(r) : "l"(from));
  return r;
}

// Four bytes, each one of the eight of a and b that a nibble of the selector names (a's first), or, with the nibble's
// highest bit, eight times that byte's highest bit.
__device__ __forceinline__ u32 prmt_b32(u32 a, u32 b, u32 selector) {
  u32 r;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(selector));
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

// 8x8 matrices of 16-bit elements: lanes 8 i .. 8 i + 7 give the row addresses of matrix i; lane l receives of each
// matrix the elements (row l / 4, columns 2 (l % 4) and + 1), with trans those of the transposed matrix.
__device__ __forceinline__ void ldmatrix_x4(u32 (&r)[4], u32 row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(row) : "memory");
}
__device__ __forceinline__ void ldmatrix_x4_trans(u32 (&r)[4], u32 row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(row) : "memory");
}
__device__ __forceinline__ void ldmatrix_x2(u32 (&r)[2], u32 row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(row)
      : "memory");
}
__device__ __forceinline__ void ldmatrix_x2_trans(u32 (&r)[2], u32 row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(row)
      : "memory");
}

// d += a b for a 16 x k (row-major) and b k x 8 (column-major), fp32 accumulation. Lane l holds of d the rows l / 4 and
// l / 4 + 8, columns 2 (l % 4) and + 1; of a the same rows, of b the column l / 4.
__device__ __forceinline__ void mma_m16n8k16_f32_bf16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void mma_m16n8k8_f32_bf16(float (&d)[4], const u32 (&a)[2], u32 b0) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(b0));
}
// #endregion

struct Arguments {
  const void* q;
  const void* k;
  const void* v;
  const void* d_o;
  float* statistics;
  void* d_q;
  i64 q_stride_batch;
  i64 q_stride_head;
  i64 q_stride_row;
  i64 k_stride_batch;
  i64 k_stride_head;
  i64 k_stride_row;
  i64 v_stride_batch;
  i64 v_stride_head;
  i64 v_stride_row;
  i64 d_o_stride_batch;
  i64 d_o_stride_head;
  i64 d_o_stride_row;
  i64 d_q_stride_batch;
  i64 d_q_stride_head;
  i64 d_q_stride_row;
  i32 heads_q;
  i32 group_size;
  i32 seq_q;
  i32 seq_kv;
  i32 query_tiles;
  i32 mask_offset;
  float softmax_scale;
  float softmax_scale_log2;
  const u64* dropout_state;
  u64 dropout_seed;
  u64 dropout_offset;
  i32 dropout_bytes;
  i32 dropout_join;
  i32 dropout_part;
  float dropout_scale;
};
constexpr u32 kArgumentBytes = 240;

constexpr i32 kHeadDimQk = 64, kHeadDimV = 64;  // elements of a row of Q and K, and of V and O
constexpr i32 kElementBytes = 2;
constexpr i32 kBlockQ = 64, kBlockKv = 64, kThreads = 128, kStages = 2;
constexpr i32 kCtasPerSm = 1;

constexpr i32 kWarpRows = 16, kRowTiles = 1;     // queries of a warp, in m16 tiles
constexpr i32 kKeyTiles = kBlockKv / 8;          // n8 tiles of S
constexpr i32 kChunks = kHeadDimQk / 8;            // 16-byte chunks of a row
constexpr i32 kRowLanes = 8;          // threads that copy a row together
constexpr i32 kDimSteps = kHeadDimQk / 16;         // k16 steps of a product over the head dim
constexpr bool kDimTail = kHeadDimQk % 16 != 0;    // and a k8 step
constexpr u32 kRowBytes = 128, kSwizzleMask = 7, kSwizzleShift = 0;
constexpr i32 kPartChunks = kChunks;             // of dQ that a warp computes: all
constexpr u32 kQOffset = 0;
constexpr u32 kDoOffset = 8192;
constexpr u32 kFirstOffset = 16384;
constexpr u32 kSecondOffset = 32768;
constexpr u32 kStreamedTileBytes = 8192;
static_assert(kThreads * kWarpRows == kBlockQ * kWarpSize && kBlockKv % 16 == 0 && kHeadDimQk % 8 == 0);
static_assert(kHeadDimQk == kHeadDimV);  // rows of all tiles lie alike
static_assert(kRowBytes == kElementBytes * kHeadDimQk && kStreamedTileBytes == kBlockKv * kRowBytes);

using ScoreFragments = float[kRowTiles][kKeyTiles][4];

// A tile in shared memory: rows of chunks of 16 bytes (eight elements). ldmatrix reads one chunk of eight consecutive
// rows at once; the chunk's place in its row is permuted so that these eight lie in different banks. The permutation
// repeats after eight rows, and changes kMask + 1 neighbouring chunks, to a multiple of whose size all tiles are
// aligned.
template <u32 kBytes, u32 kMask, u32 kShift>
struct SwizzledRows {
  __device__ __forceinline__ static u32 offset(u32 row, u32 chunk) {
    return row * kBytes + ((chunk ^ ((row >> kShift) & kMask)) << 4);
  }

  // Whether a step of fewer than kChunksApart chunks from a multiple of kChunksApart never carries.
  template <u32 kChunksApart>
  static constexpr bool kReached = kChunksApart % (kMask + 1) == 0 || (kChunksApart & (kChunksApart - 1)) == 0;

  // A lane's place in a tile, and the places that lie constant numbers of rows (a multiple of 8) and of chunks further.
  struct Cursor {
    u32 start, chunk, swizzle, address;  // start: of the row

    __device__ __forceinline__ Cursor(u32 tile, u32 row, u32 chunk)
        : start(tile + row * kBytes), chunk(chunk), swizzle((row >> kShift) & kMask),
          address(start + ((chunk ^ swizzle) << 4)) {}
    // The sum of both numbers of chunks carries nothing among the permuted ones: an even number to 0 or 1, or as
    // kReached says.
    __device__ __forceinline__ u32 at(u32 rows, u32 chunks) const {
      return (address ^ (chunks & kMask) << 4) + (chunks & ~kMask) * 16 + rows * kBytes;
    }
    __device__ __forceinline__ u32 at_any(u32 rows, u32 chunks) const {
      return start + (((chunk + (chunks & kMask)) ^ swizzle) << 4) + (chunks & ~kMask) * 16 + rows * kBytes;
    }
    template <bool kReached>
    __device__ __forceinline__ u32 at_reached(u32 rows, u32 chunks) const {
      return kReached ? at(rows, chunks) : at_any(rows, chunks);
    }
  };
};

using TileRowsLayout = SwizzledRows<kRowBytes, kSwizzleMask, kSwizzleShift>;
using TileCursor = TileRowsLayout::Cursor;
__device__ __forceinline__ u32 tile_offset(u32 row, u32 chunk) { return TileRowsLayout::offset(row, chunk); }
// Rows start at multiples of 16 bytes: a chunk is copied without registers and arrives with its cp.async group.
__device__ __forceinline__ void load_chunk(u32 to, const char* from, bool exists) {
  cp_async_cg_16(to, from, exists ? 16 : 0);
}
__device__ __forceinline__ void store_chunk(char* to, Vec4 chunk) { st_global_v4_b32(to, chunk); }

// How the threads of a copy share the chunks of a tile: consecutive threads take consecutive chunks of a row. Where a
// row's chunks divide the number of threads, each thread keeps its column and goes down the rows.
template <i32 kRows, i32 kWorkers>
struct ThreadChunks {
  static constexpr bool kColumns = kWorkers % kChunks == 0;
  static constexpr i32 kSteps = (kRows * kChunks + kWorkers - 1) / kWorkers;
  static constexpr bool kExact = kRows * kChunks % kWorkers == 0;
  static constexpr i32 kRowsPerStep = kWorkers / kChunks;
  i32 worker;

  __device__ __forceinline__ i32 row(i32 i) const {
    return kColumns ? worker / kChunks + i * kRowsPerStep : (worker + i * kWorkers) / kChunks;
  }
  __device__ __forceinline__ i32 chunk(i32 i) const {
    return kColumns ? worker % kChunks : (worker + i * kWorkers) % kChunks;
  }
};

// Copies tile after tile of kRows rows of a tensor, row_bytes apart, into shared memory, by kWorkers threads of which
// this is `worker`. Rows from `existing` on are filled with zeros (0 * NaN is NaN: what lies beyond a tensor must not
// reach a product).
template <i32 kRows, bool kAllExist, i32 kWorkers>
struct TileStream {
  using Chunks = ThreadChunks<kRows, kWorkers>;
  Chunks chunks;
  const char* next;  // of this thread's first chunk where it keeps its column, else of the tile
  i64 row_bytes;
  i32 existing;      // rows from the next tile on

  __device__ __forceinline__ TileStream(const char* first, i64 row_bytes, i32 existing, i32 worker)
      : chunks{worker}, next(Chunks::kColumns ? first + chunks.row(0) * row_bytes + chunks.chunk(0) * 16 : first),
        row_bytes(row_bytes), existing(existing) {}

  __device__ __forceinline__ void load_next(u32 to) {
    const char* at = next;
#pragma unroll
    for (i32 i = 0; i < Chunks::kSteps; ++i) {
      const i32 row = chunks.row(i), chunk = chunks.chunk(i);
      if (!Chunks::kExact && row >= kRows) break;
      if (!Chunks::kColumns) at = next + row * row_bytes + chunk * 16;
      load_chunk(to + tile_offset(row, chunk), at, kAllExist || row < existing);
      if (Chunks::kColumns) at += Chunks::kRowsPerStep * row_bytes;
    }
    next += kRows * row_bytes;
    existing -= kRows;
  }
};

// Copies the first `existing` rows of a tile of shared memory to global memory.
template <i32 kRows, bool kAllExist, i32 kWorkers>
__device__ __forceinline__ void store_tile(char* to, u32 from, i64 row_bytes, i32 existing, i32 worker) {
  using Chunks = ThreadChunks<kRows, kWorkers>;
  const Chunks chunks{worker};
#pragma unroll
  for (i32 i = 0; i < Chunks::kSteps; ++i) {
    const i32 row = chunks.row(i), chunk = chunks.chunk(i);
    if (!Chunks::kExact && row >= kRows) break;
    if (kAllExist || row < existing)
      store_chunk(to + row * row_bytes + chunk * 16, ld_shared_v4_b32(from + tile_offset(row, chunk)));
  }
}
// The element type's instructions under one name.
__device__ __forceinline__ void mma_k16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  mma_m16n8k16_f32_bf16(d, a, b0, b1);
}
__device__ __forceinline__ void mma_k8(float (&d)[4], const u32 (&a)[2], u32 b0) { mma_m16n8k8_f32_bf16(d, a, b0); }
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
template <i32 kRows>
__device__ __forceinline__ i32 first_block_of_queries(const Sequence&) {
  return 0;
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
__device__ __forceinline__ i32 first_query(const Arguments& args, const Sequence& sequence, i32 key) {
  const i64 first = key - last_offset(args, sequence);
  return static_cast<i32>(first < 0 ? 0 : first < query_count(args, sequence) ? first : query_count(args, sequence));
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
// Which elements of P dropout keeps. Query i and key j of a sequence, of head n of all batch entries, have a random
// byte: number 2·(j % 2) + i % 16 / 8 of word j % 16 / 8 of
//
//   philox7((h0 ^ (32·(i / 16) + 4·(i % 8) + j % 8 / 2), h1 ^ j / 16), seed)
//   h = philox10((a0 ^ n, a1), seed)     a = philox10(offset, seed >> 32)
//
// where philoxR(counter, key) is Philox2x32 of R rounds (Salmon, Moraes, Dror, Shaw 2011), and counters begin with
// their lower half. No tile, config or pass has a say in it, and later releases draw the same. An element is kept if
// its byte is not below a threshold: 256 times the probability, rounded down or up. It is up if the second half of the
// counter after six rounds is below dropout_part, so that the probability is exact.
//
// So a lane of a warp that has 16 queries and 16 keys as fragments hold them draws for the eight elements that it has.
constexpr u32 kPhiloxFactor = 0xd256d193u, kPhiloxKeyStep = 0x9e3779b9u;
__device__ __forceinline__ void philox_round(u32& x, u32& y, u32 key) {
  const u64 product = static_cast<u64>(x) * kPhiloxFactor;
  x = static_cast<u32>(product >> 32) ^ key ^ y;
  y = static_cast<u32>(product);
}
template <i32 kRounds>
__device__ __forceinline__ void philox(u32& x, u32& y, u32 key) {
#pragma unroll
  for (i32 round = 0; round < kRounds; ++round) philox_round(x, y, key + static_cast<u32>(round) * kPhiloxKeyStep);
}

// What the numbers of a head are drawn from.
struct HeadDropout {
  u32 queries, keys, key;  // h0, h1, seed

  HeadDropout() = default;
  __device__ __forceinline__ HeadDropout(const Arguments& args, i32 batch, i32 head) {
    u64 seed = args.dropout_seed, offset = args.dropout_offset;
    if (args.dropout_state != nullptr) {
      seed = ld_global_b64(args.dropout_state);
      offset += ld_global_b64(args.dropout_state + 1);
    }
    queries = static_cast<u32>(offset);
    keys = static_cast<u32>(offset >> 32);
    key = static_cast<u32>(seed);
    philox<10>(queries, keys, static_cast<u32>(seed >> 32));
    queries ^= static_cast<u32>(batch * args.heads_q + head);
    philox<10>(queries, keys, key);
  }
};

// In bit 7 of each byte: whether the bytes are not below those of a threshold, of whose lower bits, and highest one,
// the arguments tell. Lower bits of 0x80 are one more than all of them.
__device__ __forceinline__ u32 not_below(u32 bytes, u32 lower_bits, u32 join) {
  const u32 apart = (bytes | 0x80808080u) - lower_bits;
  return (apart & bytes) | (join & (apart | bytes));
}

// What is kept of a lane's elements: a word for the first or the other eight of 16 rows that a fragment's pairs lie in
// (of keys, where pairs are of two keys for a query), in whose bytes, in bit 7, both elements of a pair alternate for
// the first and the other eight of what the pairs are of.
struct KeptElements {
  u32 words[2];

  // The elements that are kept of a pair, in 16 bits each; the others are 0.
  __device__ __forceinline__ u32 of_pair(u32 pair, i32 word, i32 half) const { return pair & mask(word, half); }
  // All elements; the sign of those that are not kept is set.
  __device__ __forceinline__ u32 signs_of_pair(u32 pair, i32 word, i32 half) const {
    return pair | (~mask(word, half) & 0x80008000u);
  }
  __device__ __forceinline__ bool has(i32 word, i32 half, i32 element) const {
    return (words[word] & (0x80u << (16 * element + 8 * half))) != 0;
  }

 private:
  // prmt copies bytes, or with bit 3 of a selector what their highest bit is.
  __device__ __forceinline__ u32 mask(i32 word, i32 half) const {
    return prmt_b32(words[word], words[word], half == 0 ? 0xaa88u : 0xbb99u);
  }
};

// x, y: a counter of which `rounds` are still to come, with the round key.
template <i32 kRounds>
__device__ __forceinline__ KeptElements kept_elements(const Arguments& args, u32 x, u32 y, u32 key) {
  KeptElements kept;
  philox<kRounds - 1>(x, y, key);
  const u32 lower_bits = args.dropout_bytes + (y < static_cast<u32>(args.dropout_part) ? 0x01010101u : 0u);
  philox_round(x, y, key + (kRounds - 1) * kPhiloxKeyStep);
  kept.words[0] = not_below(x, lower_bits, args.dropout_join);
  kept.words[1] = not_below(y, lower_bits, args.dropout_join);
  return kept;
}

// Dropout of 16 queries of a head, which are the rows of a warp's fragments. The first round is the same for all keys.
struct QueryDropout {
  u32 mixed, product, key;

  QueryDropout() = default;
  __device__ __forceinline__ QueryDropout(const HeadDropout& head, i32 first_query) {
    mixed = head.queries ^ static_cast<u32>(2 * first_query + static_cast<i32>(lane_index()));
    product = head.keys;
    philox_round(mixed, product, head.key);
    key = head.key + kPhiloxKeyStep;
  }
  // Beside the keys 16·sixteen and on. A word is of eight keys, a half of eight queries.
  __device__ __forceinline__ KeptElements of_keys(const Arguments& args, i32 sixteen) const {
    return kept_elements<6>(args, mixed ^ static_cast<u32>(sixteen), product, key);
  }
};

// Copies tile after tile of two tensors that are walked in step, kBlock rows of each, by all threads. kRowLanes
// neighbouring threads share a row, a power of two, so that each keeps its column and walks down the rows; where a row
// has fewer chunks, some have nothing to do. Rows beyond the last are filled with zeros, as TileStream does.
template <i32 kBlock>
struct TilePairStream {
  static constexpr i32 kRowsAtOnce = kThreads / kRowLanes, kSteps = (kBlock + kRowsAtOnce - 1) / kRowsAtOnce;
  i32 row, chunk;              // of this thread's first chunk in a tile
  const char *first, *second;  // that chunk
  i64 first_row_bytes, second_row_bytes;
  i32 existing;                // rows from this thread's first one on

  __device__ __forceinline__ TilePairStream(const char* first_tensor, i64 first_row_bytes, const char* second_tensor,
      i64 second_row_bytes, i32 rows)
      : row(static_cast<i32>(thread_index()) / kRowLanes), chunk(static_cast<i32>(thread_index()) % kRowLanes),
        first(first_tensor + row * first_row_bytes + chunk * 16),
        second(second_tensor + row * second_row_bytes + chunk * 16), first_row_bytes(first_row_bytes),
        second_row_bytes(second_row_bytes), existing(rows - row) {}

  __device__ __forceinline__ void load_next(u32 first_tile, u32 second_tile) {
    if (kChunks == kRowLanes || chunk < kChunks) {
#pragma unroll
      for (i32 i = 0; i < kSteps; ++i) {
        const i32 further = i * kRowsAtOnce;
        if (kBlock % kRowsAtOnce != 0 && row + further >= kBlock) break;
        const bool exists = further < existing;
        load_chunk(first_tile + tile_offset(row + further, chunk), first + further * first_row_bytes, exists);
        load_chunk(second_tile + tile_offset(row + further, chunk), second + further * second_row_bytes, exists);
      }
    }
    first += kBlock * first_row_bytes;
    second += kBlock * second_row_bytes;
    existing -= kBlock;
  }
};
using StreamedRows = TilePairStream<kBlockKv>;  // of K and V

// Each thread keeps the statistics of its queries in registers: nothing is streamed.
struct LseDeltaStream {
  __device__ __forceinline__ void load_next(u32 /*shared*/, i32 /*into*/) {}
};

// kStages pairs of tiles, of two tensors that are walked in step, and what comes beside them; a pair is copied kStages
// - 1 steps before it is read. The one barrier of a step says that its pair has landed for all threads, and that all
// have finished with the pair before it, whose place is filled next.
struct TilePairRing {
  StreamedRows rows;
  LseDeltaStream beside;
  i32 pairs;  // that are still to be copied
  u32 shared;
  i32 stage = 0;  // of the pair that is read

  __device__ __forceinline__ void load(i32 into) {
    if (pairs-- > 0) {
      rows.load_next(shared + kFirstOffset + into * kStreamedTileBytes,
          shared + kSecondOffset + into * kStreamedTileBytes);
      beside.load_next(shared, into);
    }
    cp_async_commit_group();  // also where nothing is left to load: waiting counts groups
  }
  __device__ __forceinline__ void prefetch() {
#pragma unroll
    for (i32 i = 0; i < kStages - 1; ++i) load(i);
  }
  __device__ __forceinline__ void acquire() {
    cp_async_wait_group<kStages - 2>();
    bar_sync();
    load(stage == 0 ? kStages - 1 : stage - 1);
  }
  __device__ __forceinline__ void release() { stage = stage == kStages - 1 ? 0 : stage + 1; }
  __device__ __forceinline__ u32 first_tile() const { return shared + kFirstOffset + stage * kStreamedTileBytes; }
  __device__ __forceinline__ u32 second_tile() const { return shared + kSecondOffset + stage * kStreamedTileBytes; }
};
// A fragment of 16 queries, from row `row` of the warp on, and 16 (or, as the last step of an odd number of chunks, 8)
// elements of the head dimension. `queries` is a cursor at row l % 16 and chunk l / 16 of the warp's rows.
__device__ __forceinline__ void load_query_step(u32 (&a)[4], const TileCursor& queries, u32 row, u32 k) {
  ldmatrix_x4(a, queries.at(row, 2 * k));
}
__device__ __forceinline__ void load_query_tail(u32 (&a)[2], u32 tile, u32 row) {
  ldmatrix_x2(a, tile + tile_offset(row + lane_index() % 16, kChunks - 1));
}

// The warp's queries, read from shared memory as A fragments at each step.
struct QueryFragments {
  u32 tile, first_row;
  TileCursor queries;

  // first_row is the warp's first row in the tile.
  __device__ __forceinline__ QueryFragments(u32 tile, u32 first_row)
      : tile(tile), first_row(first_row), queries(tile, first_row + lane_index() % 16, lane_index() / 16) {}
  __device__ __forceinline__ void step(u32 (&a)[4], i32 t, i32 k) const { load_query_step(a, queries, 16 * t, k); }
  __device__ __forceinline__ void last(u32 (&a)[2], i32 t) const { load_query_tail(a, tile, first_row + 16 * t); }
};
// S = Q Kᵀ for the warp's rows and the keys of a block. K's rows are the columns of the B operand: no transposition.
__device__ __forceinline__ void gemm_qk(ScoreFragments& acc_s, const QueryFragments& q, u32 k_tile) {
  const u32 lane = lane_index();
  const TileCursor keys(k_tile, lane / 16 * 8 + lane % 8, lane / 8 % 2);
#pragma unroll
  for (i32 k = 0; k < kDimSteps; ++k) {
    u32 a[kRowTiles][4];
#pragma unroll
    for (i32 t = 0; t < kRowTiles; ++t) q.step(a[t], t, k);
#pragma unroll
    for (i32 n = 0; n < kKeyTiles; n += 2) {
      u32 b[4];
      ldmatrix_x4(b, keys.at(8 * n, 2 * k));
#pragma unroll
      for (i32 t = 0; t < kRowTiles; ++t) {
        mma_k16(acc_s[t][n], a[t], b[0], b[1]);
        mma_k16(acc_s[t][n + 1], a[t], b[2], b[3]);
      }
    }
  }
  if (kDimTail) {
    u32 a[kRowTiles][2];
#pragma unroll
    for (i32 t = 0; t < kRowTiles; ++t) q.last(a[t], t);
#pragma unroll
    for (i32 n = 0; n < kKeyTiles; n += 2) {
      u32 b[2];
      ldmatrix_x2(b, k_tile + tile_offset(8 * n + lane % 16, kChunks - 1));
#pragma unroll
      for (i32 t = 0; t < kRowTiles; ++t) {
        mma_k8(acc_s[t][n], a[t], b[0]);
        mma_k8(acc_s[t][n + 1], a[t], b[1]);
      }
    }
  }
}
// D += A B for kSteps · 16 rows of B, a tile of shared memory, and kColumns chunks of its columns, from first_chunk on.
// A comes as fragments of 16 rows and 16 columns; the tile's rows are the rows of the B operand: transposed loads.
template <i32 kSteps, i32 kTiles, i32 kColumns, class Operand>
__device__ __forceinline__ void gemm_columns(float (&acc)[kTiles][kColumns][4], const Operand& operand, u32 tile,
    i32 first_chunk) {
  const u32 lane = lane_index();
  constexpr bool kReached = kChunks % kColumns == 0 && TileRowsLayout::kReached<kColumns>;
  const TileCursor rows(tile, lane % 16, first_chunk + lane / 16);
  const TileCursor last(tile, lane % 16, first_chunk);
#pragma unroll
  for (i32 k = 0; k < kSteps; ++k) {
    u32 a[kTiles][4];
#pragma unroll
    for (i32 t = 0; t < kTiles; ++t) operand.step(a[t], t, k);
#pragma unroll
    for (i32 n = 0; n + 1 < kColumns; n += 2) {
      u32 b[4];
      ldmatrix_x4_trans(b, rows.at_reached<kReached>(16 * k, n));
#pragma unroll
      for (i32 t = 0; t < kTiles; ++t) {
        mma_k16(acc[t][n], a[t], b[0], b[1]);
        mma_k16(acc[t][n + 1], a[t], b[2], b[3]);
      }
    }
    if (kColumns % 2 != 0) {
      u32 b[2];
      ldmatrix_x2_trans(b, last.at_any(16 * k, kColumns - 1));
#pragma unroll
      for (i32 t = 0; t < kTiles; ++t) mma_k16(acc[t][kColumns - 1], a[t], b[0], b[1]);
    }
  }
}

// A from registers: two neighbouring accumulators of P or dS, packed, are one fragment.
struct PackedScores {
  const ScoreFragments& scores;
  __device__ __forceinline__ void step(u32 (&a)[4], i32 t, i32 k) const {
#pragma unroll
    for (i32 i = 0; i < 4; ++i)
      a[i] = pack_elements(scores[t][2 * k + i / 2][2 * (i % 2)], scores[t][2 * k + i / 2][2 * (i % 2) + 1]);
  }
};

using GradientFragments = float[kRowTiles][kPartChunks][4];

// Stores a gradient into a warp's rows of a tile of shared memory, from chunk `first_stored` on: another warp stores
// the chunks before it.
__device__ __forceinline__ void put_gradient(u32 tile, i32 warp_row, i32 first_chunk, i32 first_stored, float scale,
                                             const GradientFragments& acc) {
  const u32 lane = lane_index();
#pragma unroll
  for (i32 t = 0; t < kRowTiles; ++t) {
#pragma unroll
    for (i32 n = 0; n < kPartChunks; ++n) {
#pragma unroll
      for (i32 half = 0; half < 2; ++half)
        if (first_chunk + n >= first_stored)
          st_shared_b32(tile + tile_offset(warp_row + 16 * t + 8 * half + lane / 4, first_chunk + n) + lane % 4 * 4,
                        pack_elements(scale * acc[t][n][2 * half], scale * acc[t][n][2 * half + 1]));
    }
  }
}

// What all keys need to know of a query: P = exp2(c s - lse_log2), dS = P (dP - delta). A query that sees no key, or
// does not exist, has an LSE of +inf: its P is 0.
struct QueryStatistics {
  float lse_log2, delta;

  // An exponent is positive only by what rounding left of LSE: it counts as negative, so that P does not exceed 1.
  __device__ __forceinline__ float probability(float score, float scale_log2) const {
    return ex2_approx_ftz_f32(-abs_f32(fma_rn_f32(score, scale_log2, -lse_log2)));
  }
};

// Offsets are in elements.
__device__ __forceinline__ const char* row_pointer(const void* tensor, i64 sequence_offset, i64 head_offset,
    i64 row_offset) {
  return static_cast<const char*>(tensor) + kElementBytes * (sequence_offset + head_offset + row_offset);
}

// Turns dP in `ds` into dS. first_row is the warp's first query in the sequence.
template <bool kMasked>
__device__ __forceinline__ void differentiate(ScoreFragments& s, ScoreFragments& ds, const ScoreFunction& score,
    const Arguments& args, const Sequence& sequence, const QueryStatistics (&queries)[2], i32 first_row, i32 block,
    const QueryDropout& dropout) {
  const i32 first_key = block * kBlockKv + lane_index() % 4 * 2;
  KeptElements kept[kKeyTiles / 2];
#pragma unroll
  for (i32 k = 0; k < kKeyTiles / 2; ++k) kept[k] = dropout.of_keys(args, block * (kBlockKv / 16) + k);
#pragma unroll
  for (i32 half = 0; half < 2; ++half) {
    const HiddenKeys hidden(args, sequence, first_row + 8 * half + lane_index() / 4, first_key);
#pragma unroll
    for (i32 n = 0; n < kKeyTiles; ++n) {
#pragma unroll
      for (i32 e = 0; e < 2; ++e) {
        const float changed = s[0][n][2 * half + e],
            p = score.slope(queries[half].probability(changed, args.softmax_scale_log2), changed);
        const bool visible = !kMasked || !hidden.has(8 * n + e);
        const float dp = kept[n / 2].has(n % 2, half, e) ? ds[0][n][2 * half + e] * args.dropout_scale : 0.0f;
        ds[0][n][2 * half + e] = visible ? p * (dp - queries[half].delta) : 0.0f;
      }
    }
  }
}

template <bool kMasked>
__device__ __forceinline__ void kv_step(const Arguments& args, const Sequence& sequence, i32 block, i32 first_row,
    TilePairRing& ring, const QueryFragments& q, const QueryFragments& d_o, const QueryStatistics (&queries)[2],
    GradientFragments& acc_dq, const QueryDropout& dropout) {
  ScoreFragments acc_s = {}, acc_ds = {};
  ScoreFunction score(args);
  ring.acquire();
  gemm_qk(acc_s, q, ring.first_tile());      // S = Q Kᵀ
  score.modify(acc_s);
  gemm_qk(acc_ds, d_o, ring.second_tile());  // dP = dO Vᵀ
  differentiate<kMasked>(acc_s, acc_ds, score, args, sequence, queries, first_row, block, dropout);
  gemm_columns<kBlockKv / 16>(acc_dq, PackedScores{acc_ds}, ring.first_tile(), 0);  // dQ = dQ + dS K
  ring.release();
}

extern "C" __global__ void __launch_bounds__(kThreads, kCtasPerSm)
    attune_backward_dq_sm80(const __grid_constant__ Arguments args) {
  const i32 tile = static_cast<i32>(block_index() % static_cast<u32>(args.query_tiles)),
            batch_head = static_cast<i32>(block_index() / static_cast<u32>(args.query_tiles));
  const Sequence sequence(args, batch_head / args.heads_q);
  const i32 head = batch_head - sequence.batch * args.heads_q, head_kv = head / args.group_size,
      tile_row = tile * kBlockQ;
  const i32 rows = query_count(args, sequence) - tile_row < kBlockQ ? query_count(args, sequence) - tile_row : kBlockQ;
  const i32 warp_row = warp_index() * kWarpRows, first_row = tile_row + warp_row;
  const u32 shared = shared_base();

  const KeyBlocks blocks(args, sequence, tile_row, tile_row + rows - 1);

  TilePairStream<kBlockQ>(row_pointer(args.q, sequence.query_offset(args.q_stride_batch, args.q_stride_row),
      head * args.q_stride_head, tile_row * args.q_stride_row), kElementBytes * args.q_stride_row,
      row_pointer(args.d_o, sequence.query_offset(args.d_o_stride_batch, args.d_o_stride_row),
      head * args.d_o_stride_head, tile_row * args.d_o_stride_row), kElementBytes * args.d_o_stride_row, rows)
      .load_next(shared + kQOffset, shared + kDoOffset);
  cp_async_commit_group();
  const i64 first_key = static_cast<i64>(blocks.begin) * kBlockKv;
  const char* k = row_pointer(args.k, sequence.key_offset(args.k_stride_batch, args.k_stride_row),
      head_kv * args.k_stride_head, first_key * args.k_stride_row);
  const char* v = row_pointer(args.v, sequence.key_offset(args.v_stride_batch, args.v_stride_row),
      head_kv * args.v_stride_head, first_key * args.v_stride_row);
  TilePairRing ring{StreamedRows(k, kElementBytes * args.k_stride_row, v, kElementBytes * args.v_stride_row,
      key_count(args, sequence) - static_cast<i32>(first_key)), LseDeltaStream{}, blocks.end - blocks.begin, shared};
  ring.prefetch();

  const QueryFragments q(shared + kQOffset, warp_row), d_o(shared + kDoOffset, warp_row);
  const float* statistics = args.statistics +
      2 * (static_cast<i64>(batch_head) * args.query_tiles * kBlockQ +
      first_block_of_queries<kBlockQ>(sequence) * kBlockQ + first_row + lane_index() / 4);
  const QueryStatistics queries[2] = {{ld_global_f32(statistics), ld_global_f32(statistics + 1) * args.dropout_scale},
                                      {ld_global_f32(statistics + 16),
                                      ld_global_f32(statistics + 17) * args.dropout_scale}};
  GradientFragments acc_dq = {};
  const QueryDropout dropout(HeadDropout(args, sequence.batch, head), first_row);
  i32 block = blocks.begin;
  for (; block < blocks.unmasked_end; ++block)
    kv_step<false>(args, sequence, block, first_row, ring, q, d_o, queries, acc_dq, dropout);
  for (; block < blocks.end; ++block)
    kv_step<true>(args, sequence, block, first_row, ring, q, d_o, queries, acc_dq, dropout);

  // dQ leaves through the warp's own rows of Q's tile, so that global stores are whole chunks of a row.
  cp_async_wait_group<0>();
  bar_sync();
  put_gradient(shared + kQOffset, warp_row, 0, 0, args.softmax_scale, acc_dq);
  bar_warp_sync();
  const i64 row_bytes = kElementBytes * args.d_q_stride_row;
  char* d_q =
      const_cast<char*>(row_pointer(args.d_q, sequence.query_offset(args.d_q_stride_batch, args.d_q_stride_row),
      head * args.d_q_stride_head, 0));
  const i32 stored = rows;
  store_tile<kWarpRows, false, kWarpSize>(d_q + first_row * row_bytes, shared + kQOffset + warp_row * kRowBytes,
      row_bytes, stored - warp_row, lane_index());
}
static_assert(sizeof(Arguments) == kArgumentBytes, "the host packs the arguments as this compiler lays them out");

}  // namespace attune_ef344ce4cd6b4163
