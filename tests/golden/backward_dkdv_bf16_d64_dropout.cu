// attune backward bf16 d64 causal dropout sm80 q64 kv64 w4 st2 · source 2e34b3c451c225c7
//
// dK and dV of one tile of keys of one key/value head, on mma.sync (compute capability 8.0 and newer). Keys are the
// rows of all products but dQ's:
//
//   for each query head of the group, for each block of queries:
//     Sᵀ = K Qᵀ        Pᵀ = exp2(c Sᵀ - LSE·log2(e)), masked     dV = dV + Pᵀ dO
//     dPᵀ = V dOᵀ      dSᵀ = Pᵀ ∘ (dPᵀ - delta)                  dK = dK + dSᵀ Q
//     dQ is another kernel's
//   dK = scale·dK,   c = scale·log2(e)
//
// What dropout keeps of P counts in dV, divided by the share of it; dP where it is kept, likewise, in dS.
//
// A warp owns kWarpRows keys. kQueryWarps warps own the same: each computes Sᵀ and dPᵀ of kWarpQueries queries of a
// block, and kPartChunks chunks of the columns of dK and dV from all of them.
//
// shared memory, bytes:
//        0  K  [64][64]   later dK
//     8192  V  [64][64]   later dV
//    16384  Q  [2][64][64]
//    32768  dO  [2][64][64]
//    49152  LSE and delta  [2][64][2], fp32
//    50176  end

namespace attune_3dd2440a63878dcf {

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

struct alignas(16) Vec4F32 { float x, y, z, w; };

__device__ __forceinline__ Vec4F32 ld_shared_v4_f32(u32 from) {
  Vec4F32 r;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(r.x), "=f"(r.y), "=f"(r.z), "=f"(r.w) : "r"(from)
      : "memory");
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

// The element (row l / 4, columns 2 (l % 4) and + 1) of the transposed matrix, of which each lane gives those of the
// matrix.
__device__ __forceinline__ u32 movmatrix_trans(u32 x) {
  u32 r;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(x));
  return r;
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
  void* d_k;
  void* d_v;
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
  i64 d_k_stride_batch;
  i64 d_k_stride_head;
  i64 d_k_stride_row;
  i64 d_v_stride_batch;
  i64 d_v_stride_head;
  i64 d_v_stride_row;
  i32 heads_q;
  i32 group_size;
  i32 seq_q;
  i32 seq_kv;
  i32 key_tiles;
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
constexpr u32 kArgumentBytes = 272;

constexpr i32 kHeadDimQk = 64, kHeadDimV = 64;  // elements of a row of Q and K, and of V and O
constexpr i32 kElementBytes = 2;
constexpr i32 kBlockQ = 64, kBlockKv = 64, kWarps = 4, kQueryWarps = 1, kStages = 2;
constexpr i32 kCtasPerSm = 1;

constexpr i32 kThreads = kWarps * kWarpSize;
constexpr i32 kWarpRows = kBlockKv / (kWarps / kQueryWarps), kWarpQueries = kBlockQ / kQueryWarps;
constexpr i32 kRowTiles = kWarpRows / 16;        // m16 tiles of a warp
constexpr i32 kKeyTiles = kWarpQueries / 8;      // n8 tiles of Sᵀ
constexpr i32 kChunks = kHeadDimQk / 8;            // 16-byte chunks of a row
constexpr i32 kRowLanes = 8;          // threads that copy a row together
constexpr i32 kDimSteps = kHeadDimQk / 16;         // k16 steps of a product over the head dim
constexpr bool kDimTail = kHeadDimQk % 16 != 0;    // and a k8 step
constexpr u32 kRowBytes = 128, kSwizzleMask = 7, kSwizzleShift = 0;
constexpr i32 kPartChunks = (kChunks + kQueryWarps - 1) / kQueryWarps;  // of dK and dV that a warp computes
constexpr u32 kKOffset = 0;
constexpr u32 kVOffset = 8192;
constexpr u32 kFirstOffset = 16384;
constexpr u32 kSecondOffset = 32768;
constexpr u32 kStatisticsOffset = 49152;
constexpr u32 kStreamedTileBytes = 8192;
static_assert(kBlockKv % (16 * (kWarps / kQueryWarps)) == 0 && kBlockQ % (16 * kQueryWarps) == 0 &&
    kHeadDimQk % 8 == 0);
static_assert(kHeadDimQk == kHeadDimV);  // rows of all tiles lie alike
static_assert(kRowBytes == kElementBytes * kHeadDimQk && kStreamedTileBytes == kBlockQ * kRowBytes);

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
__device__ __forceinline__ i32 workspace_batch(const Sequence& sequence) { return sequence.batch; }
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

// The blocks of queries [begin, end) that attend to some of the keys from first_key on. Those of [unmasked_begin,
// unmasked_end) attend to all of these keys. Either range may be empty. With kMaskRagged, no block counts as unmasked
// where the keys do not fill their tile.
template <bool kMaskRagged>
struct QueryBlocks {
  i32 begin, unmasked_begin, end, all;  // what attends to a key ends with the last query: end and all are the same

  __device__ __forceinline__ QueryBlocks(const Arguments& args, const Sequence& sequence, i32 first_key, i32 keys) {
    const i32 last_key = first_key + keys - 1;
    all = (query_count(args, sequence) + kBlockQ - 1) / kBlockQ;
    const i32 existing = all;
    end = existing;
    const i32 first = first_query(args, sequence, first_key), first_of_last = first_query(args, sequence, last_key);
    begin = first < query_count(args, sequence) ? first / kBlockQ : end;
    unmasked_begin = kMaskRagged && keys < kBlockKv ? end : (first_of_last + kBlockQ - 1) / kBlockQ;
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

// Dropout of 16 keys, which are the rows of a warp's fragments. What is drawn is turned: lanes draw as where queries
// are the rows.
struct KeyDropout {
  u32 queries, keys, key;

  KeyDropout() = default;
  __device__ __forceinline__ KeyDropout(const HeadDropout& head, i32 first_key)
      : queries(head.queries ^ lane_index()), keys(head.keys ^ static_cast<u32>(first_key / 16)), key(head.key) {}
  // Beside the queries 16·sixteen and on. A word is of eight keys, a half of eight queries.
  __device__ __forceinline__ KeptElements of_queries(const Arguments& args, i32 sixteen) const {
    KeptElements kept = kept_elements<7>(args, queries ^ static_cast<u32>(32 * sixteen), keys, key);
#pragma unroll
    for (i32 word = 0; word < 2; ++word) kept.words[word] = movmatrix_trans(kept.words[word]);
    return kept;
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
using StreamedRows = TilePairStream<kBlockQ>;  // of Q and dO

// What all keys need to know of a query: P = exp2(c s - lse_log2), dS = P (dP - delta). A query that sees no key, or
// does not exist, has an LSE of +inf: its P is 0.
struct QueryStatistics {
  float lse_log2, delta;

  // An exponent is positive only by what rounding left of LSE: it counts as negative, so that P does not exceed 1.
  __device__ __forceinline__ float probability(float score, float scale_log2) const {
    return ex2_approx_ftz_f32(-abs_f32(fma_rn_f32(score, scale_log2, -lse_log2)));
  }
};

// Streams LSE·log2(e) and delta of a block's queries beside its Q and dO.
struct LseDeltaStream {
  static constexpr u32 kBytes = 8 * kBlockQ, kCopies = kBytes / 16;
  const char* next;

  // first_row counts through all heads of the workspace.
  __device__ __forceinline__ LseDeltaStream(const Arguments& args, i64 first_row)
      : next(reinterpret_cast<const char*>(args.statistics) + 8 * first_row + 16 * thread_index()) {}
  __device__ __forceinline__ void load_next(u32 shared, i32 into) {
#pragma unroll
    for (u32 i = 0; i < kCopies; i += kThreads) {
      if (kCopies % kThreads == 0 || i + thread_index() < kCopies)
        cp_async_cg_16(shared + kStatisticsOffset + into * kBytes + 16 * (i + thread_index()), next + 16 * i, 16);
    }
    next += kBytes;
  }
};

// The statistics of two neighbouring queries of the block; the first of them is even.
__device__ __forceinline__ void load_statistics(QueryStatistics (&two)[2], u32 shared, i32 stage, i32 query) {
  const Vec4F32 read = ld_shared_v4_f32(shared + kStatisticsOffset + stage * LseDeltaStream::kBytes + 8 * query);
  two[0] = {read.x, read.y};
  two[1] = {read.z, read.w};
}

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

struct KeyGradients {
  GradientFragments dk, dv;
};

// The part of a tile that a warp computes: its first key, its first query in each block, and its columns of dK and dV.
struct WarpPart {
  i32 row, query, first_chunk, first_stored;

  __device__ __forceinline__ WarpPart(i32 warp) {
    const i32 part = warp % kQueryWarps;
    row = warp / kQueryWarps * kWarpRows;
    query = part * kWarpQueries;
    // The last part begins early enough to be as wide as the others. The part before it stores the columns that both
    // have.
    first_stored = part * kPartChunks;
    first_chunk = first_stored < kChunks - kPartChunks ? first_stored : kChunks - kPartChunks;
  }
};

// Another kernel computes dQ.
struct DqAccumulation {
  static constexpr bool kAdded = false;

  __device__ __forceinline__ DqAccumulation(const Arguments&, const Sequence&, i64 /*head*/, i32 /*tile*/, i32 /*warp*/,
      u32 /*shared*/) {}
  __device__ __forceinline__ void await_ticket(i32 /*block*/) const {}
  __device__ __forceinline__ void add(i32 /*block*/) {}
  __device__ __forceinline__ void pass_ticket() const {}
  __device__ __forceinline__ void finish() const {}
};
// A warp has all queries of its keys: Pᵀ and dSᵀ are A operands from registers, and no other warp needs them. Another
// kernel computes dQ.
__device__ __forceinline__ void add_gradients(KeyGradients& acc, DqAccumulation&, const ScoreFragments& p,
    const ScoreFragments& ds, const WarpPart& part, const TilePairRing& ring, i32 /*block*/, u32 /*shared*/) {
  gemm_columns<kBlockQ / 16>(acc.dv, PackedScores{p}, ring.second_tile(), part.first_chunk);   // dV = dV + Pᵀ dO
  gemm_columns<kBlockQ / 16>(acc.dk, PackedScores{ds}, ring.first_tile(), part.first_chunk);   // dK = dK + dSᵀ Q
}

// Every key/value head has tiles of keys of its own. A CTA walks through the query heads that share them.
struct TileHeads {
  // of a batch entry
  __device__ __forceinline__ static i32 count(const Arguments& args) { return args.heads_q / args.group_size; }
  __device__ __forceinline__ static i32 of_keys(const Arguments&, i32 head) { return head; }
  __device__ __forceinline__ static i32 of_queries(const Arguments& args, i32 head, i32 member) {
    return head * args.group_size + member;
  }
  __device__ __forceinline__ static i32 walked(const Arguments& args) { return args.group_size; }
};
// CTAs take tiles in the order of their numbers.
__device__ __forceinline__ i32 take_tile_id(const Arguments&, u32 /*shared*/) {
  return static_cast<i32>(block_index());
}
// Maps the number of a CTA to the tile that it takes, as KeyTile counts tiles. Computed once, since registers are short
// later.
// CTAs take all tiles of a head, then those of the next.
__device__ __forceinline__ i32 tile_in_order(const Arguments&, i32 number) { return number; }

struct KeyTile {
  Sequence sequence;
  i32 tile, head, first_key, keys;  // head: with tiles of its own, as TileHeads says

  // index: among the tiles of all heads, all tiles of a head, then those of the next.
  __device__ __forceinline__ KeyTile(const Arguments& args, i32 index) {
    tile = index % args.key_tiles;
    const i32 head_of_all = index / args.key_tiles, heads = TileHeads::count(args);
    sequence = Sequence(args, head_of_all / heads);
    head = head_of_all - sequence.batch * heads;
    first_key = tile * kBlockKv;
    keys = key_count(args, sequence) - first_key < kBlockKv ? key_count(args, sequence) - first_key : kBlockKv;
  }
  // Rows of dK and dV that belong to the tile.
  __device__ __forceinline__ i32 rows(const Arguments&) const { return keys; }
};

// Offsets are in elements.
__device__ __forceinline__ const char* row_pointer(const void* tensor, i64 sequence_offset, i64 head_offset,
    i64 row_offset) {
  return static_cast<const char*>(tensor) + kElementBytes * (sequence_offset + head_offset + row_offset);
}

// Whether blocks of queries are masked where keys do not fill their tile. Keys beyond the last would have a P that is
// not 0, or NaN.
constexpr bool kMasksRagged = DqAccumulation::kAdded;  // their dS must not reach dQ

// query, in what follows, is the warp's first one in the block.
// Turns Sᵀ into Pᵀ.
__device__ __forceinline__ void exponentiate(ScoreFragments& p, const Arguments& args, i32 query, u32 shared,
    i32 stage) {
#pragma unroll
  for (i32 n = 0; n < kKeyTiles; ++n) {
    QueryStatistics two[2];
    load_statistics(two, shared, stage, query + 8 * n + static_cast<i32>(lane_index() % 4 * 2));
#pragma unroll
    for (i32 i = 0; i < 4 * kRowTiles; ++i) {
      float& probability = p[i / 4][n][i % 4];
      probability = two[i % 2].probability(probability, args.softmax_scale_log2);
    }
  }
}

// Turns dPᵀ into dSᵀ.
__device__ __forceinline__ void differentiate(ScoreFragments& ds, const ScoreFragments& p, i32 query, u32 shared,
    i32 stage) {
#pragma unroll
  for (i32 n = 0; n < kKeyTiles; ++n) {
    QueryStatistics two[2];
    load_statistics(two, shared, stage, query + 8 * n + static_cast<i32>(lane_index() % 4 * 2));
#pragma unroll
    for (i32 i = 0; i < 4 * kRowTiles; ++i) {
      float& gradient = ds[i / 4][n][i % 4];
      gradient = p[i / 4][n][i % 4] * (gradient - two[i % 2].delta);
    }
  }
}

// Sets Pᵀ to 0 where a query does not attend to a key. first_query and first_key are the warp's first ones in the
// sequence.
__device__ __forceinline__ void mask_probabilities(ScoreFragments& p, const Arguments& args, const Sequence& sequence,
    i32 first_query, i32 first_key) {
#pragma unroll
  for (i32 n = 0; n < kKeyTiles; ++n) {
#pragma unroll
    for (i32 e = 0; e < 2; ++e) {
      const i32 query = first_query + 8 * n + static_cast<i32>(lane_index() % 4 * 2) + e;
      HiddenKeys hidden(args, sequence, query, first_key);
      hidden.move(static_cast<i32>(lane_index() / 4));
#pragma unroll
      for (i32 i = 0; i < 2 * kRowTiles; ++i)
        if (hidden.has(8 * i)) p[i / 2][n][i % 2 * 2 + e] = 0;
    }
  }
}

// What dropout keeps of a block's scores.
struct KeptScores {
  KeptElements sixteens[kRowTiles][kKeyTiles / 2];

  __device__ __forceinline__ KeptScores(const Arguments& args, const KeyDropout (&dropout)[kRowTiles], i32 query) {
#pragma unroll
    for (i32 i = 0; i < kRowTiles * (kKeyTiles / 2); ++i)
      sixteens[i / (kKeyTiles / 2)][i % (kKeyTiles / 2)] = dropout[i / (kKeyTiles / 2)].of_queries(args,
          query / 16 + i % (kKeyTiles / 2));
  }
  // What is not kept becomes 0.
  __device__ __forceinline__ void keep(ScoreFragments& x) const {
#pragma unroll
    for (i32 t = 0; t < kRowTiles; ++t) {
#pragma unroll
      for (i32 n = 0; n < kKeyTiles; ++n) {
#pragma unroll
        for (i32 i = 0; i < 4; ++i) x[t][n][i] = sixteens[t][n / 2].has(i / 2, n % 2, i % 2) ? x[t][n][i] : 0.0f;
      }
    }
  }
};

// The exponentials come before the product dPᵀ, so that they may run beside it; the mask, a branch, comes after it.
__device__ __forceinline__ void query_step(const Arguments& args, bool masked, i32 block, const KeyTile& tile,
    const WarpPart& part, TilePairRing& ring, const QueryFragments& k, const QueryFragments& v, KeyGradients& acc,
    DqAccumulation& dq, u32 shared, const KeyDropout (&dropout)[kRowTiles]) {
  ScoreFragments acc_p = {}, acc_ds = {};
  ScoreFunction score(args);
  ring.acquire();
  dq.pass_ticket();
  gemm_qk(acc_p, k, ring.first_tile() + part.query * kRowBytes);    // Sᵀ = K Qᵀ
  score.modify(acc_p);
  exponentiate(acc_p, args, part.query, shared, ring.stage);
  gemm_qk(acc_ds, v, ring.second_tile() + part.query * kRowBytes);  // dPᵀ = V dOᵀ
  const KeptScores kept(args, dropout, block * kBlockQ + part.query);
  kept.keep(acc_ds);
  if (masked) mask_probabilities(acc_p, args, tile.sequence, block * kBlockQ + part.query, tile.first_key + part.row);
  differentiate(acc_ds, acc_p, part.query, shared, ring.stage);
  kept.keep(acc_p);
  add_gradients(acc, dq, acc_p, acc_ds, part, ring, block, shared);
  ring.release();
}

__device__ __forceinline__ void load_keys(const Arguments& args, const KeyTile& tile, u32 shared) {
  const i64 row = tile.first_key;
  const i32 head = TileHeads::of_keys(args, tile.head);
  const char* k = row_pointer(args.k, tile.sequence.key_offset(args.k_stride_batch, args.k_stride_row),
      head * args.k_stride_head, row * args.k_stride_row);
  const char* v = row_pointer(args.v, tile.sequence.key_offset(args.v_stride_batch, args.v_stride_row),
      head * args.v_stride_head, row * args.v_stride_row);
  TilePairStream<kBlockKv>(k, kElementBytes * args.k_stride_row, v, kElementBytes * args.v_stride_row,
      tile.keys).load_next(shared + kKOffset, shared + kVOffset);
  cp_async_commit_group();
}

// dK and dV leave through the tiles of K and V, which all warps have read, so that global stores are whole chunks of a
// row.
__device__ __forceinline__ void finish_key_gradients(const Arguments& args, const KeyTile& tile, const WarpPart& part,
    const KeyGradients& acc) {
  const u32 shared = shared_base();
  put_gradient(shared + kKOffset, part.row, part.first_chunk, part.first_stored,
      args.softmax_scale * args.dropout_scale, acc.dk);
  put_gradient(shared + kVOffset, part.row, part.first_chunk, part.first_stored, args.dropout_scale, acc.dv);
  bar_sync();
  const i32 worker = opaque_i32(thread_index());
  const i64 dk_row_bytes = kElementBytes * args.d_k_stride_row, dv_row_bytes = kElementBytes * args.d_v_stride_row;
  char* d_k =
      const_cast<char*>(row_pointer(args.d_k, tile.sequence.key_offset(args.d_k_stride_batch, args.d_k_stride_row),
      tile.head * args.d_k_stride_head, 0));
  char* d_v =
      const_cast<char*>(row_pointer(args.d_v, tile.sequence.key_offset(args.d_v_stride_batch, args.d_v_stride_row),
      tile.head * args.d_v_stride_head, 0));
  store_tile<kBlockKv, false, kThreads>(d_k + tile.first_key * dk_row_bytes, shared + kKOffset, dk_row_bytes,
      tile.rows(args), worker);
  store_tile<kBlockKv, false, kThreads>(d_v + tile.first_key * dv_row_bytes, shared + kVOffset, dv_row_bytes,
      tile.rows(args), worker);
}

extern "C" __global__ void __launch_bounds__(kThreads, kCtasPerSm)
    attune_backward_dkdv_sm80(const __grid_constant__ Arguments args) {
  const u32 shared = shared_base();
  const i32 index = tile_in_order(args, take_tile_id(args, shared));
  const i32 warp = warp_index();
  const WarpPart part(warp);
  load_keys(args, KeyTile(args, index), shared);

  const QueryFragments k(shared + kKOffset, part.row), v(shared + kVOffset, part.row);
  KeyGradients acc = {};
  for (i32 member = 0; member < TileHeads::walked(args); ++member) {
    // What belongs to the tile is computed again for each head, since registers are short in the steps.
    const KeyTile tile(args, opaque_i32(index));
    const QueryBlocks<kMasksRagged> blocks(args, tile.sequence, tile.first_key, tile.keys);
    const i32 head = TileHeads::of_queries(args, tile.head, member);
    const i64 first_row = static_cast<i64>(blocks.begin) * kBlockQ,
        row_head = static_cast<i64>(workspace_batch(tile.sequence)) * args.heads_q + head;
    const char* q =
        row_pointer(args.q, tile.sequence.query_offset(args.q_stride_batch, args.q_stride_row),
            head * args.q_stride_head, first_row * args.q_stride_row);
    const char* d_o =
        row_pointer(args.d_o, tile.sequence.query_offset(args.d_o_stride_batch, args.d_o_stride_row),
            head * args.d_o_stride_head, first_row * args.d_o_stride_row);
    TilePairRing ring{StreamedRows(q, kElementBytes * args.q_stride_row, d_o, kElementBytes * args.d_o_stride_row,
        query_count(args, tile.sequence) - static_cast<i32>(first_row)),
        LseDeltaStream(args,
        (row_head * blocks.all + first_block_of_queries<kBlockQ>(tile.sequence)) * kBlockQ + first_row),
        blocks.end - blocks.begin, shared};
    if (member > 0) bar_sync();  // all have read the last block of the head before
    ring.prefetch();
    const HeadDropout of_head(args, tile.sequence.batch, head);
    KeyDropout dropout[kRowTiles];
#pragma unroll
    for (i32 t = 0; t < kRowTiles; ++t) dropout[t] = KeyDropout(of_head, tile.first_key + part.row + 16 * t);
    DqAccumulation dq(args, tile.sequence, row_head, tile.tile, warp, shared);
    for (i32 block = blocks.begin; block < blocks.end; ++block) {
      const bool masked = block < blocks.unmasked_begin;
      query_step(args, masked, block, tile, part, ring, k, v, acc, dq, shared, dropout);
    }
    dq.finish();
  }

  cp_async_wait_group<0>();
  bar_sync();
  finish_key_gradients(args, KeyTile(args, opaque_i32(index)), WarpPart(opaque_i32(warp)), acc);
}
static_assert(sizeof(Arguments) == kArgumentBytes, "the host packs the arguments as this compiler lays them out");

}  // namespace attune_3dd2440a63878dcf
