// attune forward bf16 d64 causal dropout sm80 q128 kv64 w4 st2 · source 3b248410792f5ebb
//
// Attention forward for one tile of queries of one head, on mma.sync (compute capability 8.0 and newer):
//
//   for each block of keys:   S = Q Kᵀ, masked          m' = max(m, rowmax S)
//                             P = exp2(c S - c m')      l = l·exp2(c m - c m') + rowsum P
//                             O = O·exp2(c m - c m') + P V
//   O = O / l,   LSE = scale·m + ln l,   c = scale·log2(e)
//
// What dropout keeps of P goes into O, divided by the share of it; l and LSE have all.
//
// Each warp owns kWarpRows queries and all keys of a block: S, P and O stay in its registers.
//
// shared memory, bytes:
//        0  Q  [128][64]   later O
//    16384  K  [2][64][64]
//    32768  V  [2][64][64]
//    49152  end

namespace attune_8a436e9739337771 {

// #region primitives: of PTX, the instructions that this kernel uses
using i32 = int;
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

struct alignas(16) Vec4 { u32 x, y, z, w; };  // 16 bytes: eight 16-bit elements

// Address of the CTA's dynamic shared memory in the shared window; all shared addresses are such 32-bit numbers.
__device__ __forceinline__ u32 shared_base() {
  extern __shared__ __align__(1024) unsigned char dynamic_shared[];
  return static_cast<u32>(__cvta_generic_to_shared(dynamic_shared));
}

__device__ __forceinline__ void st_global_f32(void* to, float x) {
  asm volatile("st.global.f32 [%0], %1;" ::"l"(to), "f"(x) : "memory");
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

// x of the lane whose index differs in the bits of kMask.
template <int kMask>
__device__ __forceinline__ float shfl_sync_bfly_f32(float x) {
  float r;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=f"(r) : "f"(x), "n"(kMask));
  return r;
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
__device__ __forceinline__ float max_f32(float a, float b) { return fmaxf(a, b); }
__device__ __forceinline__ float abs_f32(float x) { return fabsf(x); }

__device__ __forceinline__ float ex2_approx_ftz_f32(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
__device__ __forceinline__ float lg2_approx_ftz_f32(float x) {
  float r;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
__device__ __forceinline__ float rcp_approx_ftz_f32(float x) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

// All threads of the CTA.
__device__ __forceinline__ void bar_sync() { asm volatile("bar.sync 0;" ::: "memory"); }

// All lanes of the warp; orders their accesses to shared memory.
__device__ __forceinline__ void bar_warp_sync() { __syncwarp(); }

// Whether x holds in any lane of the warp.
__device__ __forceinline__ bool vote_sync_any(bool x) { return __any_sync(kAllLanes, x); }

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
  void* o;
  float* lse;
  i64 q_stride_batch;
  i64 q_stride_head;
  i64 q_stride_row;
  i64 k_stride_batch;
  i64 k_stride_head;
  i64 k_stride_row;
  i64 v_stride_batch;
  i64 v_stride_head;
  i64 v_stride_row;
  i64 o_stride_batch;
  i64 o_stride_head;
  i64 o_stride_row;
  i32 batch;
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
constexpr u32 kArgumentBytes = 216;

constexpr i32 kHeadDimQk = 64, kHeadDimV = 64;  // elements of a row of Q and K, and of V and O
constexpr i32 kElementBytes = 2;
constexpr i32 kBlockQ = 128, kBlockKv = 64, kWarps = 4, kStages = 2;
constexpr bool kEvenTiles = false;     // lengths are multiples of the tiles
constexpr float kRescaleThreshold = 0;  // in powers of two; 0: rescale at every block
constexpr bool kPartialBlocks = true;  // whether any block can need a mask
constexpr i32 kCtasPerSm = 1;

constexpr i32 kThreads = kWarps * kWarpSize;
constexpr i32 kWarpRows = kBlockQ / kWarps;
constexpr i32 kRowTiles = kWarpRows / 16;        // m16 tiles of a warp
constexpr i32 kKeyTiles = kBlockKv / 8;          // n8 tiles of S
constexpr i32 kChunks = kHeadDimV / 8;            // n8 tiles of O; 16-byte chunks of a row
constexpr i32 kDimSteps = kHeadDimQk / 16;         // k16 steps of Q Kᵀ
constexpr bool kDimTail = kHeadDimQk % 16 != 0;    // and a k8 step
constexpr u32 kRowBytes = 128, kSwizzleMask = 7, kSwizzleShift = 0;
constexpr i32 kPrefetchGroups = kStages > 1 ? kStages - 1 : 1;  // cp.async groups of the ring's prefetch
constexpr u32 kQOffset = 0;
constexpr u32 kKOffset = 16384;
constexpr u32 kVOffset = 32768;
constexpr u32 kKvTileBytes = 8192;
static_assert(kBlockQ % (16 * kWarps) == 0 && kBlockKv % 16 == 0 && kHeadDimV % 8 == 0);
static_assert(kHeadDimQk == kHeadDimV);  // rows of all tiles lie alike
static_assert(kRowBytes == kElementBytes * kHeadDimQk && kKvTileBytes == kBlockKv * kRowBytes);
static_assert(kKOffset >= kQOffset + kBlockQ * kRowBytes && kVOffset >= kKOffset + kStages * kKvTileBytes);

using ScoreFragments = float[kRowTiles][kKeyTiles][4];
using OutputFragments = float[kRowTiles][kChunks][4];

// A tile in shared memory: rows of kChunks chunks of 16 bytes (eight elements). ldmatrix reads one chunk of eight
// consecutive rows at once; the chunk's place in its row is permuted so that these eight lie in different banks. Rows
// of an odd number of chunks need no permutation (kSwizzleMask is 0).
__device__ __forceinline__ u32 tile_offset(u32 row, u32 chunk) {
  return row * kRowBytes + ((chunk ^ ((row >> kSwizzleShift) & kSwizzleMask)) << 4);
}

// A lane's place in a tile (row below 16, chunk 0 or 1), and the places that lie whole multiples of 8 rows and 2 chunks
// further: their permutation is the lane's own. Where rows are a power of two long, the step to another chunk is one
// xor on the whole address.
struct TileCursor {
  static constexpr bool kXor = (kRowBytes & (kRowBytes - 1)) == 0 && kSwizzleMask != 0;
  u32 tile, row, chunk, address;

  __device__ __forceinline__ TileCursor(u32 tile, u32 row, u32 chunk)
      : tile(tile), row(row), chunk(chunk), address(tile + tile_offset(row, chunk)) {}
  __device__ __forceinline__ u32 at(u32 rows, u32 chunks) const {
    return kXor ? (address ^ (chunks << 4)) + rows * kRowBytes : tile + tile_offset(row + rows, chunk + chunks);
  }
};
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

// Rows that each batch entry has in the tensors of queries and of keys.
__device__ __forceinline__ i32 stored_queries(const Arguments& args) { return args.seq_q; }
__device__ __forceinline__ i32 stored_queries(const Arguments& args, const Sequence&) { return stored_queries(args); }

// The rows of a head in a tensor without columns, such as LSE, which is packed: (batch, heads, queries); and the place
// of a row there.
__device__ __forceinline__ i64 packed_query_row(const Arguments& args, const Sequence& sequence, i32 head, i64 row) {
  return (static_cast<i64>(sequence.batch) * args.heads_q + head) * args.seq_q + row;
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

// The blocks of keys of a sequence follow each other in memory. Copies tile after tile of K or V, from block `begin`
// on.
struct KvStream : TileStream<kBlockKv, kEvenTiles, kThreads> {
  __device__ __forceinline__ KvStream(const Arguments& args, const Sequence& sequence, const char* head, i64 row_bytes,
      i32 begin)
      : TileStream(head + begin * kBlockKv * row_bytes, row_bytes, key_count(args, sequence) - begin * kBlockKv,
        thread_index()) {}
};

// The tile of queries that a CTA works on.
struct TileIndex {
  i32 tile, batch_head;
};
// Consecutive CTAs take the tiles of one head: its K and V stay in L2.
__device__ __forceinline__ TileIndex tile_index(const Arguments& args, u32 cta) {
  const u32 tiles = args.query_tiles;
  return {static_cast<i32>(cta % tiles), static_cast<i32>(cta / tiles)};
}

struct QueryTile {
  Sequence sequence;
  i32 head, head_kv;    // its first query head
  i32 first_row, rows;  // rows that exist

  __device__ __forceinline__ explicit QueryTile(const Arguments& args) {
    const TileIndex index = tile_index(args, block_index());
    sequence = Sequence(args, index.batch_head / args.heads_q);
    head = index.batch_head - sequence.batch * args.heads_q;
    head_kv = head / args.group_size;
    first_row = index.tile * kBlockQ;
    rows = kEvenTiles || all_rows(args) - first_row > kBlockQ ? kBlockQ : all_rows(args) - first_row;
  }
  // The rows of all tiles of a head, also behind the last query of the sequence, and the position in the sequence and
  // the head of a row.
  __device__ __forceinline__ i32 all_rows(const Arguments& args) const { return stored_queries(args, sequence); }
  __device__ __forceinline__ static i32 position_of(i32 row) { return row; }
  __device__ __forceinline__ i32 head_of(i32 /*row*/) const { return head; }
};

// Offsets are in elements.
__device__ __forceinline__ const char* row_pointer(const void* tensor, i64 sequence_offset, i64 head_offset,
    i64 row_offset) {
  return static_cast<const char*>(tensor) + kElementBytes * (sequence_offset + head_offset + row_offset);
}

// kStages tiles of K and of V; a block's two tiles are copied kStages - 1 steps before they are read. The one barrier
// of a step says that its block has landed for all threads, and that all have finished with the block before it, whose
// tiles are filled next.
struct KvRing {
  KvStream k, v;
  i32 blocks;  // that are still to be copied
  u32 shared;
  i32 stage = 0;  // of the block that is read

  __device__ __forceinline__ void load(i32 into) {
    if (blocks-- > 0) {
      k.load_next(shared + kKOffset + into * kKvTileBytes);
      v.load_next(shared + kVOffset + into * kKvTileBytes);
    }
    cp_async_commit_group();  // also where nothing is left to load: waiting counts groups
  }
  __device__ __forceinline__ void prefetch() {
#pragma unroll
    for (i32 i = 0; i < kStages - 1; ++i) load(i);
  }
  __device__ __forceinline__ void acquire_k() {
    cp_async_wait_group<kStages - 2>();
    bar_sync();
    load(stage == 0 ? kStages - 1 : stage - 1);
  }
  __device__ __forceinline__ void acquire_v() {}
  __device__ __forceinline__ void release() { stage = stage == kStages - 1 ? 0 : stage + 1; }
  __device__ __forceinline__ u32 k_tile() const { return shared + kKOffset + stage * kKvTileBytes; }
  __device__ __forceinline__ u32 v_tile() const { return shared + kVOffset + stage * kKvTileBytes; }
};

// Rows of a head lie apart evenly in Q and O.

// Q's tile into shared memory, by all threads of the CTA.
__device__ __forceinline__ void load_query_rows(const Arguments& args, const QueryTile& tile, u32 q_tile) {
  const i64 row_bytes = kElementBytes * args.q_stride_row;
  const char* q =
      row_pointer(args.q, tile.sequence.query_offset(args.q_stride_batch, args.q_stride_row),
          tile.head * args.q_stride_head, 0) + tile.first_row * row_bytes;
  TileStream<kBlockQ, kEvenTiles, kThreads>(q, row_bytes, tile.rows, thread_index()).load_next(q_tile);
}

// A warp's rows of O out of shared memory.
__device__ __forceinline__ void store_query_rows(const Arguments& args, const QueryTile& tile, u32 o_tile,
    i32 warp_row) {
  const i64 row_bytes = kElementBytes * args.o_stride_row;
  char* o =
      const_cast<char*>(row_pointer(args.o, tile.sequence.query_offset(args.o_stride_batch, args.o_stride_row),
      tile.head * args.o_stride_head, 0));
  store_tile<kWarpRows, kEvenTiles, kWarpSize>(o + (tile.first_row + warp_row) * row_bytes,
      o_tile + warp_row * kRowBytes, row_bytes, tile.rows - warp_row, lane_index());
}
// A fragment of 16 queries, from row `row` of the warp on, and 16 (or, as the last step of an odd number of chunks, 8)
// elements of the head dimension. `queries` is a cursor at row l % 16 and chunk l / 16 of the warp's rows.
__device__ __forceinline__ void load_query_step(u32 (&a)[4], const TileCursor& queries, u32 row, u32 k) {
  ldmatrix_x4(a, queries.at(row, 2 * k));
}
__device__ __forceinline__ void load_query_tail(u32 (&a)[2], u32 tile, u32 row) {
  ldmatrix_x2(a, tile + tile_offset(row + lane_index() % 16, kChunks - 1));
}

// The warp's queries as A fragments that stay in registers.
struct QueryFragments {
  u32 steps[kRowTiles][kDimSteps > 0 ? kDimSteps : 1][4];
  u32 tail[kRowTiles][2];

  // first_row is the warp's first row in the tile.
  __device__ __forceinline__ QueryFragments(u32 tile, u32 first_row) {
    const TileCursor queries(tile, first_row + lane_index() % 16, lane_index() / 16);
#pragma unroll
    for (i32 t = 0; t < kRowTiles; ++t) {
#pragma unroll
      for (i32 k = 0; k < kDimSteps; ++k) load_query_step(steps[t][k], queries, 16 * t, k);
      if (kDimTail) load_query_tail(tail[t], tile, first_row + 16 * t);
    }
  }
  __device__ __forceinline__ void step(u32 (&a)[4], i32 t, i32 k) const {
#pragma unroll
    for (i32 i = 0; i < 4; ++i) a[i] = steps[t][k][i];
  }
  __device__ __forceinline__ void last(u32 (&a)[2], i32 t) const {
    a[0] = tail[t][0];
    a[1] = tail[t][1];
  }
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
// O += P V. Two neighbouring accumulators of S, packed, are one A fragment; V's rows are the rows of the B operand:
// transposed loads.
__device__ __forceinline__ void gemm_pv(OutputFragments& acc_o, const ScoreFragments& p, u32 v_tile,
    const Arguments& args, const QueryDropout (&dropout)[kRowTiles], i32 block) {
  const u32 lane = lane_index();
  const TileCursor keys(v_tile, lane % 16, lane / 16);
#pragma unroll
  for (i32 k = 0; k < kKeyTiles / 2; ++k) {
    u32 a[kRowTiles][4];
#pragma unroll
    for (i32 t = 0; t < kRowTiles; ++t) {
#pragma unroll
      for (i32 i = 0; i < 4; ++i)
        a[t][i] = pack_elements(p[t][2 * k + i / 2][2 * (i % 2)], p[t][2 * k + i / 2][2 * (i % 2) + 1]);
      const KeptElements kept = dropout[t].of_keys(args, block * (kBlockKv / 16) + k);
#pragma unroll
      for (i32 i = 0; i < 4; ++i) a[t][i] = kept.of_pair(a[t][i], i / 2, i % 2);
    }
#pragma unroll
    for (i32 n = 0; n + 1 < kChunks; n += 2) {
      u32 b[4];
      ldmatrix_x4_trans(b, keys.at(16 * k, n));
#pragma unroll
      for (i32 t = 0; t < kRowTiles; ++t) {
        mma_k16(acc_o[t][n], a[t], b[0], b[1]);
        mma_k16(acc_o[t][n + 1], a[t], b[2], b[3]);
      }
    }
    if (kDimTail) {
      u32 b[2];
      ldmatrix_x2_trans(b, v_tile + tile_offset(16 * k + lane % 16, kChunks - 1));
#pragma unroll
      for (i32 t = 0; t < kRowTiles; ++t) mma_k16(acc_o[t][kChunks - 1], a[t], b[0], b[1]);
    }
  }
}

// Online softmax of the warp's rows. A thread holds two rows of each m16 tile (row l / 4 and the one 8 below); the four
// lanes of a quad share a row. P = exp2(c s - c m) with the row's maximum m or, with kRescaleThreshold, one that is
// less than that many powers of two below it. m is -inf only while a row has seen no key.
struct OnlineSoftmax {
  // Rounding c m changes the exponents of a row by up to 2^-24 |c m|. From here on m is subtracted from the scores
  // before they are multiplied.
  static constexpr float kLargeExponent = 0x1p12f;

  float softmax_scale_log2;  // c
  float row_max[kRowTiles][2];
  float row_sum[kRowTiles][2];  // this thread's share

  __device__ __forceinline__ explicit OnlineSoftmax(float scale_log2) : softmax_scale_log2(scale_log2) {
#pragma unroll
    for (i32 i = 0; i < 2 * kRowTiles; ++i) {
      row_max[i / 2][i % 2] = negative_infinity();
      row_sum[i / 2][i % 2] = 0;
    }
  }

  // Turns scores into P, and brings O and the sums to the new row_max.
  template <bool kMasked>
  __device__ __forceinline__ void update(ScoreFragments& s, OutputFragments& acc_o) {
    float largest[kRowTiles][2], offset[kRowTiles][2];
    find_offsets<kMasked>(offset);
#pragma unroll
    for (i32 i = 0; i < 2 * kRowTiles; ++i) largest[i / 2][i % 2] = largest_score(s, i / 2, i % 2);
    if (must_rescale(largest, offset)) {
#pragma unroll
      for (i32 i = 0; i < 2 * kRowTiles; ++i) raise_row_max<kMasked>(largest[i / 2][i % 2], acc_o, i / 2, i % 2);
      find_offsets<kMasked>(offset);
      subtract_large_row_max(s, offset);
    }
#pragma unroll
    for (i32 i = 0; i < 2 * kRowTiles; ++i) exponentiate(s, offset[i / 2][i % 2], i / 2, i % 2);
  }

  // Sums over the quads; O = O / l. A row that has seen no key keeps its zeros; a NaN stays one.
  __device__ __forceinline__ void normalize(OutputFragments& acc_o, const Arguments& args) {
#pragma unroll
    for (i32 i = 0; i < 2 * kRowTiles; ++i) {
      const i32 t = i / 2, half = i % 2;
      float& sum = row_sum[t][half];
      sum += shfl_sync_bfly_f32<1>(sum);
      sum += shfl_sync_bfly_f32<2>(sum);
      const float inverse = sum != 0 ? rcp_approx_ftz_f32(sum) * args.dropout_scale : 0;
#pragma unroll
      for (i32 n = 0; n < kChunks; ++n) {
        acc_o[t][n][2 * half] *= inverse;
        acc_o[t][n][2 * half + 1] *= inverse;
      }
    }
  }

  // LSE = scale m + ln l, after normalize().
  __device__ __forceinline__ float lse(float softmax_scale, i32 t, i32 half) const {
    constexpr float kLn2 = 0.693147180559945309f;
    const float sum = row_sum[t][half];
    return sum != 0 ? fma_rn_f32(row_max[t][half], softmax_scale, lg2_approx_ftz_f32(sum) * kLn2) : negative_infinity();
  }

 private:
  __device__ __forceinline__ float largest_score(const ScoreFragments& s, i32 t, i32 half) const {
    float m = row_max[t][half];
#pragma unroll
    for (i32 n = 0; n < kKeyTiles; ++n) m = max_f32(m, max_f32(s[t][n][2 * half], s[t][n][2 * half + 1]));
    m = max_f32(m, shfl_sync_bfly_f32<1>(m));
    return max_f32(m, shfl_sync_bfly_f32<2>(m));
  }

  // One answer for the warp: whether a row's maximum has grown by so much, or a row has large exponents. -inf - -inf is
  // NaN and compares false.
  __device__ __forceinline__ bool must_rescale(const float (&largest)[kRowTiles][2],
      const float (&offset)[kRowTiles][2]) const {
    if (kRescaleThreshold == 0) return true;
    bool grown = is_large(offset);
#pragma unroll
    for (i32 i = 0; i < 2 * kRowTiles; ++i)
      grown |= (largest[i / 2][i % 2] - row_max[i / 2][i % 2]) * softmax_scale_log2 > kRescaleThreshold;
    return vote_sync_any(grown);
  }

  template <bool kMasked>
  __device__ __forceinline__ void raise_row_max(float to, OutputFragments& acc_o, i32 t, i32 half) {
    const float scale = ex2_approx_ftz_f32((row_max[t][half] - finite_row_max<kMasked>(to)) * softmax_scale_log2);
    row_max[t][half] = to;
    row_sum[t][half] *= scale;
#pragma unroll
    for (i32 n = 0; n < kChunks; ++n) {
      acc_o[t][n][2 * half] *= scale;
      acc_o[t][n][2 * half + 1] *= scale;
    }
  }

  // -c m of all rows.
  template <bool kMasked>
  __device__ __forceinline__ void find_offsets(float (&offset)[kRowTiles][2]) const {
#pragma unroll
    for (i32 i = 0; i < 2 * kRowTiles; ++i)
      offset[i / 2][i % 2] = -finite_row_max<kMasked>(row_max[i / 2][i % 2]) * softmax_scale_log2;
  }
  __device__ __forceinline__ static bool is_large(float offset) { return abs_f32(offset) >= kLargeExponent; }
  __device__ __forceinline__ static bool is_large(const float (&offset)[kRowTiles][2]) {
    bool large = false;
#pragma unroll
    for (i32 i = 0; i < 2 * kRowTiles; ++i) large |= is_large(offset[i / 2][i % 2]);
    return large;
  }

  // Takes m from the offsets of rows where it is large, and subtracts it from their scores instead. Those of other rows
  // of the warp stay as they are.
  __device__ __forceinline__ void subtract_large_row_max(ScoreFragments& s, float (&offset)[kRowTiles][2]) const {
    if (!vote_sync_any(is_large(offset))) return;
#pragma unroll
    for (i32 i = 0; i < 2 * kRowTiles; ++i) {
      const i32 t = i / 2, half = i % 2;
      const float m = is_large(offset[t][half]) ? row_max[t][half] : 0;
      if (is_large(offset[t][half])) offset[t][half] = 0;
#pragma unroll
      for (i32 n = 0; n < kKeyTiles; ++n) {
        s[t][n][2 * half] -= m;
        s[t][n][2 * half + 1] -= m;
      }
    }
  }

  __device__ __forceinline__ void exponentiate(ScoreFragments& s, float offset, i32 t, i32 half) {
    float sum = 0;
#pragma unroll
    for (i32 n = 0; n < kKeyTiles; ++n) {
#pragma unroll
      for (i32 e = 0; e < 2; ++e) {
        float& x = s[t][n][2 * half + e];
        x = ex2_approx_ftz_f32(fma_rn_f32(x, softmax_scale_log2, offset));
        sum += x;
      }
    }
    row_sum[t][half] += sum;
  }

  // A row that has seen no key yet has only scores of -inf: any finite row_max makes their P zero.
  template <bool kMasked>
  __device__ __forceinline__ static float finite_row_max(float m) {
    return kMasked && m == negative_infinity() ? 0 : m;
  }
};

// Sets the scores of keys that their row does not attend to to -inf. first_row is the warp's first row.
__device__ __forceinline__ void mask_scores(ScoreFragments& s, const Arguments& args, const Sequence& sequence,
    i32 first_row, i32 block) {
  const i32 first_key = block * kBlockKv + lane_index() % 4 * 2;
#pragma unroll
  for (i32 i = 0; i < 2 * kRowTiles; ++i) {
    const HiddenKeys hidden(args, sequence, QueryTile::position_of(first_row + 8 * i + lane_index() / 4), first_key);
#pragma unroll
    for (i32 n = 0; n < kKeyTiles; ++n) {
#pragma unroll
      for (i32 e = 0; e < 2; ++e)
        if (hidden.has(8 * n + e)) s[i / 2][n][i % 2 * 2 + e] = negative_infinity();
    }
  }
}

template <bool kMasked>
__device__ __forceinline__ void kv_step(const Arguments& args, const Sequence& sequence, i32 block, i32 first_row,
    KvRing& ring, const QueryFragments& q, OnlineSoftmax& softmax, OutputFragments& acc_o,
    const QueryDropout (&dropout)[kRowTiles]) {
  ScoreFragments acc_s = {};
  ScoreFunction score(args);
  ring.acquire_k();
  gemm_qk(acc_s, q, ring.k_tile());         // S = Q Kᵀ
  score.modify(acc_s);
  ring.acquire_v();
  if (kMasked) mask_scores(acc_s, args, sequence, first_row, block);
  softmax.update<kMasked>(acc_s, acc_o);
  gemm_pv(acc_o, acc_s, ring.v_tile(), args, dropout, block);     // O = O + P V
  ring.release();
}

// O leaves through the warp's own rows of Q's tile, so that global stores are whole chunks of a row.
__device__ __forceinline__ void store_output(const Arguments& args, const QueryTile& tile, u32 q_tile, i32 warp_row,
                                             const OutputFragments& acc_o) {
  const u32 lane = lane_index();
  bar_warp_sync();
#pragma unroll
  for (i32 t = 0; t < kRowTiles; ++t) {
#pragma unroll
    for (i32 n = 0; n < kChunks; ++n) {
#pragma unroll
      for (i32 half = 0; half < 2; ++half)
        st_shared_b32(q_tile + tile_offset(warp_row + 16 * t + 8 * half + lane / 4, n) + lane % 4 * 4,
                      pack_elements(acc_o[t][n][2 * half], acc_o[t][n][2 * half + 1]));
    }
  }
  bar_warp_sync();
  store_query_rows(args, tile, q_tile, warp_row);
}

// LSE is packed (B, Hq, Sq); one lane of a quad writes each row.
__device__ __forceinline__ void store_lse(const Arguments& args, const QueryTile& tile, i32 warp_row,
    const OnlineSoftmax& softmax) {
  const u32 lane = lane_index();
  if (args.lse == nullptr || lane % 4 != 0) return;
#pragma unroll
  for (i32 t = 0; t < kRowTiles; ++t) {
#pragma unroll
    for (i32 half = 0; half < 2; ++half) {
      const i32 row = warp_row + 16 * t + 8 * half + static_cast<i32>(lane / 4), i = tile.first_row + row;
      if (row < tile.rows)
        st_global_f32(args.lse + packed_query_row(args, tile.sequence, tile.head_of(i), QueryTile::position_of(i)),
                      softmax.lse(args.softmax_scale, t, half));
    }
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, kCtasPerSm)
    attune_forward(const __grid_constant__ Arguments args) {
  const QueryTile tile(args);
  const i32 top_query = QueryTile::position_of(tile.first_row),
      bottom_query = QueryTile::position_of(tile.first_row + tile.rows - 1);
  const KeyBlocks blocks(args, tile.sequence, top_query, bottom_query);
  const i32 warp_row = warp_index() * kWarpRows;  // the warp's first row in the tile
  const u32 shared = shared_base(), q_tile = shared + kQOffset;

  load_query_rows(args, tile, q_tile);
  cp_async_commit_group();
  const char* k = row_pointer(args.k, tile.sequence.key_offset(args.k_stride_batch, args.k_stride_row),
      tile.head_kv * args.k_stride_head, 0);
  const char* v = row_pointer(args.v, tile.sequence.key_offset(args.v_stride_batch, args.v_stride_row),
      tile.head_kv * args.v_stride_head, 0);
  KvRing ring{KvStream(args, tile.sequence, k, kElementBytes * args.k_stride_row, blocks.begin),
      KvStream(args, tile.sequence, v, kElementBytes * args.v_stride_row, blocks.begin), blocks.end - blocks.begin,
      shared};
  ring.prefetch();

  cp_async_wait_group<kPrefetchGroups>();
  bar_sync();
  const QueryFragments q(q_tile, warp_row);
  OnlineSoftmax softmax(args.softmax_scale_log2);
  OutputFragments acc_o = {};

  const i32 first_row = tile.first_row + warp_row;
  const HeadDropout of_head(args, tile.sequence.batch, tile.head);
  QueryDropout dropout[kRowTiles];
#pragma unroll
  for (i32 t = 0; t < kRowTiles; ++t) dropout[t] = QueryDropout(of_head, first_row + 16 * t);
  i32 block = blocks.begin;
  for (; block < blocks.unmasked_end; ++block)
    kv_step<false>(args, tile.sequence, block, first_row, ring, q, softmax, acc_o, dropout);
  if (kPartialBlocks)
    for (; block < blocks.end; ++block)
      kv_step<true>(args, tile.sequence, block, first_row, ring, q, softmax, acc_o, dropout);

  softmax.normalize(acc_o, args);
  store_output(args, tile, q_tile, warp_row, acc_o);
  store_lse(args, tile, warp_row, softmax);
}
static_assert(sizeof(Arguments) == kArgumentBytes, "the host packs the arguments as this compiler lays them out");

}  // namespace attune_8a436e9739337771
