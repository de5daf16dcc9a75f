// attune standard forward bf16 d64 causal sm80 q64 kv64 w4 st1 · source 97dc30b9e35a2faf
//
// The scores of one tile of queries of one head, on mma.sync (compute capability 8.0 and newer), into device memory:
//
//   S = Q Kᵀ,   in fp32, for the keys that each query attends to
//
// shared memory, bytes:
//        0  Q  [64][64]
//     8192  K  [2][64][64]
//    24576  end

namespace attune_92d1afef6b8d1340 {

// #region primitives: of PTX, the instructions that this kernel uses
using i32 = int;
using u32 = unsigned int;
using i64 = long long;

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

__device__ __forceinline__ void st_global_f32(void* to, float x) {
  asm volatile("st.global.f32 [%0], %1;" ::"l"(to), "f"(x) : "memory");
}
__device__ __forceinline__ void st_global_v4_b32(void* to, Vec4 x) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
}

__device__ __forceinline__ Vec4 ld_shared_v4_b32(u32 from) {
  Vec4 r;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "r"(from)
      : "memory");
  return r;
}

struct alignas(8) Vec2F32 { float x, y; };

__device__ __forceinline__ void st_global_v2_f32(float* to, Vec2F32 x) {
  asm volatile("st.global.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(x.x), "f"(x.y) : "memory");
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

// All threads of the CTA.
__device__ __forceinline__ void bar_sync() { asm volatile("bar.sync 0;" ::: "memory"); }

// 8x8 matrices of 16-bit elements: lanes 8 i .. 8 i + 7 give the row addresses of matrix i; lane l receives of each
// matrix the elements (row l / 4, columns 2 (l % 4) and + 1), with trans those of the transposed matrix.
__device__ __forceinline__ void ldmatrix_x4(u32 (&r)[4], u32 row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(row) : "memory");
}
__device__ __forceinline__ void ldmatrix_x2(u32 (&r)[2], u32 row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(row)
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
  float* scores;
  i64 q_stride_batch;
  i64 q_stride_head;
  i64 q_stride_row;
  i64 k_stride_batch;
  i64 k_stride_head;
  i64 k_stride_row;
  i32 heads_q;
  i32 group_size;
  i32 seq_q;
  i32 seq_kv;
  i32 query_tiles;
  i32 mask_offset;
};
constexpr u32 kArgumentBytes = 96;

constexpr i32 kBlockKv = 64, kHeadDim = 64, kElementBytes = 2, kWarps = 4;
constexpr u32 kQOffset = 0;
constexpr u32 kKOffset = 8192;
constexpr i32 kThreads = kWarps * kWarpSize;
constexpr i32 kWarpRows = 16, kRowTiles = 1;     // a warp owns one m16 tile of queries
constexpr i32 kRowsPerTile = kWarps * kWarpRows;
constexpr i32 kKeyTiles = kBlockKv / 8;          // n8 tiles of S
constexpr i32 kChunks = kHeadDim / 8;            // n8 tiles of O; 16-byte chunks of a row
constexpr bool kDimTail = kHeadDim % 16 != 0;    // where it is no multiple of 16
constexpr u32 kRowBytes = 128, kSwizzleMask = 7, kSwizzleShift = 0;
static_assert(kBlockKv % 16 == 0 && kHeadDim % 8 == 0);

using ScoreFragments = float[kRowTiles][kKeyTiles][4];
using OutputFragments = float[kRowTiles][kChunks][4];
constexpr i32 kDimSteps = kHeadDim / 16;         // k16 steps of Q Kᵀ; kDimTail: and a k8 step

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

// The diagonals of the mask.
__device__ __forceinline__ i64 last_offset(const Arguments& args, const Sequence&) { return args.mask_offset; }
// A query attends to the keys with key <= query + last_offset. Neither the first nor the last key of a query falls from
// one query to the next. A query that attends to no key has its first key behind its last one.
__device__ __forceinline__ i32 last_key(const Arguments& args, const Sequence& sequence, i32 query) {
  const i64 diagonal = query + last_offset(args, sequence);  // may leave 32 bits
  const i64 last = key_count(args, sequence) - 1;
  return static_cast<i32>(diagonal < -1 ? -1 : diagonal < last ? diagonal : last);
}

// Changes the scores q·k of a block before they are masked, and takes a gradient back through that change. Here scores
// stay as they are.
struct ScoreFunction {
  ScoreFunction() = default;
  __device__ __forceinline__ explicit ScoreFunction(const Arguments&) {}
  __device__ __forceinline__ void modify(ScoreFragments& /*scores*/) {}
  // P times the derivative of the change.
  __device__ __forceinline__ float slope(float p, float /*score*/) const { return p; }
};

// The CTA's tile of queries. Tiles of a head are neighbours in the grid, then come the heads, then the batch.
struct QueryTile {
  Sequence sequence;
  i32 head, head_kv, batch_head;
  i32 first_row, rows;  // rows that exist

  __device__ __forceinline__ explicit QueryTile(const Arguments& args) {
    const u32 tile = block_index() % static_cast<u32>(args.query_tiles);
    batch_head = static_cast<i32>(block_index() / static_cast<u32>(args.query_tiles));
    sequence = Sequence(args, batch_head / args.heads_q);
    head = batch_head - sequence.batch * args.heads_q;
    head_kv = head / args.group_size;
    first_row = static_cast<i32>(tile) * kRowsPerTile;
    rows = query_count(args, sequence) - first_row < kRowsPerTile ? query_count(args, sequence) - first_row
        : kRowsPerTile;
  }
};
// S and P have a row of fp32 for each query of each head, of which only the keys that the query attends to are ever
// touched. Rows start at multiples of 16 bytes.
__device__ __forceinline__ float* score_row(const Arguments& args, const QueryTile& tile, i32 row) {
  const i64 pitch = (static_cast<i64>(args.seq_kv) + 3) & ~static_cast<i64>(3);
  return args.scores + (static_cast<i64>(tile.batch_head) * args.seq_q + tile.first_row + row) * pitch;
}
// Keys [0, attended_keys) are attended to; a row that pads the tile attends to none.
__device__ __forceinline__ i32 attended_keys(const Arguments& args, const QueryTile& tile, i32 row) {
  return row < tile.rows ? last_key(args, tile.sequence, tile.first_row + row) + 1 : 0;
}
__device__ __forceinline__ char* row_pointer(const void* tensor, i64 batch_offset, i64 head_offset, i64 row_offset) {
  return const_cast<char*>(static_cast<const char*>(tensor)) +
      kElementBytes * (batch_offset + head_offset + row_offset);
}
// Blocks of keys that some query of the tile attends to.
__device__ __forceinline__ i32 attended_blocks(const Arguments& args, const QueryTile& tile) {
  return (last_key(args, tile.sequence, tile.first_row + tile.rows - 1) + kBlockKv) / kBlockKv;
}

// Two tiles of shared memory for the tiles of a tensor that a loop walks over: one is read while the next is copied.
// The one barrier of a step says that a tile has landed for all threads, and that all have finished with the one
// before, whose place is filled next.
struct TileRing {
  static constexpr u32 kTileBytes = kBlockKv * kRowBytes;
  TileStream<kBlockKv, false, kThreads> stream;
  i32 tiles;  // that are still to be copied
  u32 first_tile;
  i32 stage = 0;  // of the tile that is read

  __device__ __forceinline__ void load(i32 into) {
    if (tiles-- > 0) stream.load_next(first_tile + into * kTileBytes);
    cp_async_commit_group();
  }
  __device__ __forceinline__ u32 acquire() {
    cp_async_wait_group<0>();
    bar_sync();
    load(1 - stage);
    return first_tile + stage * kTileBytes;
  }
  __device__ __forceinline__ void release() { stage = 1 - stage; }
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

// A thread has two neighbouring keys of each eight, of two queries.
__device__ __forceinline__ void store_scores(const Arguments& args, const QueryTile& tile, i32 warp_row, i32 block,
    const ScoreFragments& s) {
  const i32 first_key = block * kBlockKv + static_cast<i32>(lane_index() % 4 * 2);
#pragma unroll
  for (i32 half = 0; half < 2; ++half) {
    const i32 row = warp_row + 8 * half + static_cast<i32>(lane_index() / 4),
        keys = attended_keys(args, tile, row) - first_key;
    float* to = score_row(args, tile, row) + first_key;
#pragma unroll
    for (i32 n = 0; n < kKeyTiles; ++n) {
      if (8 * n + 1 < keys) {
        st_global_v2_f32(to + 8 * n, Vec2F32{s[0][n][2 * half], s[0][n][2 * half + 1]});
      } else if (8 * n < keys) {
        st_global_f32(to + 8 * n, s[0][n][2 * half]);
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(kThreads) attune_ladder_scores(const __grid_constant__ Arguments args) {
  const QueryTile tile(args);
  const i32 warp_row = warp_index() * kWarpRows, blocks = attended_blocks(args, tile);
  const u32 shared = shared_base();

  const char* q = row_pointer(args.q, tile.sequence.query_offset(args.q_stride_batch, args.q_stride_row),
      tile.head * args.q_stride_head, tile.first_row * args.q_stride_row);
  const char* k = row_pointer(args.k, tile.sequence.key_offset(args.k_stride_batch, args.k_stride_row),
      tile.head_kv * args.k_stride_head, 0);
  TileStream<kRowsPerTile, false, kThreads>(q, kElementBytes * args.q_stride_row, tile.rows,
      thread_index()).load_next(shared + kQOffset);
  TileRing ring{{k, kElementBytes * args.k_stride_row, key_count(args, tile.sequence),
      static_cast<i32>(thread_index())}, blocks, shared + kKOffset};
  ring.load(0);  // one cp.async group with Q

  const QueryFragments q_rows(shared + kQOffset, warp_row);
  for (i32 block = 0; block < blocks; ++block) {
    ScoreFragments acc_s = {};
    const u32 k_tile = ring.acquire();
    gemm_qk(acc_s, q_rows, k_tile);  // S = Q Kᵀ
    ScoreFunction(args).modify(acc_s);
    store_scores(args, tile, warp_row, block, acc_s);
    ring.release();
  }
  cp_async_wait_group<0>();
}
static_assert(sizeof(Arguments) == kArgumentBytes, "the host packs the arguments as this compiler lays them out");

}  // namespace attune_92d1afef6b8d1340
