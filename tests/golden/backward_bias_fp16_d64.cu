// attune backward fp16 d64 causal softcap alibi bias=bhqk bias-gradient sm80 q64 kv64 w4 st2 · source b3c4614838536994
//
// The gradient of a bias, on mma.sync (compute capability 8.0 and newer):
//
//   dbias = Σ P ∘ (dP - delta)     over the batch entries, heads and queries along which the bias repeats
//
//   P = exp2(c S + log2(e)·(-slope·|key - diagonal| + bias - LSE)), masked,   S = Q Kᵀ,   dP = dO Vᵀ,   c = softcap·log2(e); the diagonal of the last query ends at the last key
//
// Scores are capped: S = tanh(scale / softcap·Q Kᵀ). The bias is added behind that.
//
// A CTA has a tile of kTile queries and kTile keys of one plane of the bias; where that repeats along the queries, it
// has kTile keys of all of them. It walks over the tiles of S that share these elements, in a fixed order, and sums in
// registers. Each warp owns 16 queries and all keys of a tile.
//
// shared memory, bytes:
//        0  Q  [2][64][64]
//    16384  dO  [2][64][64]
//    32768  K  [2][64][64]
//    49152  V  [2][64][64]
//    65536  end

namespace attune_3ca23cf9eabe9071 {

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

// Address of the CTA's dynamic shared memory in the shared window; all shared addresses are such 32-bit numbers.
__device__ __forceinline__ u32 shared_base() {
  extern __shared__ __align__(1024) unsigned char dynamic_shared[];
  return static_cast<u32>(__cvta_generic_to_shared(dynamic_shared));
}

__device__ __forceinline__ u16 ld_global_b16(const void* from) {
  u16 r;
  asm volatile("ld.global.nc.b16 %0, [%1];" : "=h"(r) : "l"(from));
  return r;
}
__device__ __forceinline__ void st_global_b16(void* to, u16 x) {
  asm volatile("st.global.b16 [%0], %1;" ::"l"(to), "h"(x) : "memory");
}
__device__ __forceinline__ void st_global_v4_b32(void* to, Vec4 x) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
}

__device__ __forceinline__ void st_shared_b32(u32 to, u32 x) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(x) : "memory");
}
__device__ __forceinline__ u32 ld_shared_b32(u32 from) {
  u32 r;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(r) : "r"(from) : "memory");
  return r;
}

// Memory that the kernel itself writes: no .nc, whose cache may hold what was there before.
__device__ __forceinline__ float ld_weak_global_f32(const float* from) {
  float r;
  asm volatile("ld.weak.global.f32 %0, [%1];" : "=f"(r) : "l"(from) : "memory");
  return r;
}

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

// Two elements of 16 bits as floats.
__device__ __forceinline__ float cvt_f32_low_f16(u32 pair) {
  float r;
  asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %1;\ncvt.f32.f16 %0, low;\n}" : "=f"(r) : "r"(pair));
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

__device__ __forceinline__ float fma_rn_f32(float a, float b, float c) { return __fmaf_rn(a, b, c); }
// Clamped to [0, 1]; NaN becomes 0.
__device__ __forceinline__ float fma_rn_sat_f32(float a, float b, float c) {
  float r;
  asm("fma.rn.sat.f32 %0, %1, %2, %3;" : "=f"(r) : "f"(a), "f"(b), "f"(c));
  return r;
}
__device__ __forceinline__ float abs_f32(float x) { return fabsf(x); }

__device__ __forceinline__ float ex2_approx_ftz_f32(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

// PTX promises 2^-11 of the result.
__device__ __forceinline__ float tanh_approx_f32(float x) {
  float r;
  asm("tanh.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

__device__ __forceinline__ u32 f32_to_bits(float x) { return __float_as_uint(x); }
// By an instruction: where the compiler saw through it, accumulators of wgmma became integers, which it copied.
__device__ __forceinline__ float bits_to_f32(u32 x) {
  float r;
  asm("mov.b32 %0, %1;" : "=f"(r) : "r"(x));
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
__device__ __forceinline__ void ldmatrix_x2(u32 (&r)[2], u32 row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(row)
      : "memory");
}

// d += a b for a 16 x k (row-major) and b k x 8 (column-major), fp32 accumulation. Lane l holds of d the rows l / 4 and
// l / 4 + 8, columns 2 (l % 4) and + 1; of a the same rows, of b the column l / 4.
__device__ __forceinline__ void mma_m16n8k16_f32_f16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void mma_m16n8k8_f32_f16(float (&d)[4], const u32 (&a)[2], u32 b0) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(b0));
}
// #endregion

struct Arguments {
  const void* q;
  const void* k;
  const void* v;
  const void* d_o;
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
  float* statistics;
  void* d_bias;
  i64 d_bias_stride_batch;
  i64 d_bias_stride_head;
  i64 d_bias_stride_row;
  i32 batch;
  i32 heads_q;
  i32 group_size;
  i32 seq_q;
  i32 seq_kv;
  i32 key_tiles;
  i32 bias_batch;
  i32 bias_heads;
  i32 bias_rows;
  i32 mask_offset;
  float softmax_scale_log2;
  float tanh_scale;
  const float* alibi_slopes;
  i64 alibi_slopes_stride_batch;
  i64 alibi_slopes_stride_head;
  const void* bias;
  i64 bias_stride_batch;
  i64 bias_stride_head;
  i64 bias_stride_row;
};
constexpr u32 kArgumentBytes = 272;

constexpr i32 kHeadDimQk = 64, kHeadDimV = 64;  // elements of a row of Q and K, and of V and O
constexpr i32 kElementBytes = 2, kBiasBytes = 2;
constexpr i32 kTile = 64, kBlockQ = kTile, kBlockKv = kTile, kThreads = 128, kStages = 2;
constexpr i32 kRows = 64;          // queries whose statistics lie together

constexpr i32 kWarpRows = 16, kRowTiles = 1, kWarps = kTile / kWarpRows;  // queries of a warp, in m16 tiles
constexpr i32 kKeyTiles = kTile / 8;             // n8 tiles of S
constexpr i32 kChunks = kHeadDimQk / 8;          // 16-byte chunks of a row
constexpr i32 kRowLanes = 8;          // threads that copy a row together
constexpr i32 kDimSteps = kHeadDimQk / 16;       // k16 steps of a product over the head dim
constexpr bool kDimTail = kHeadDimQk % 16 != 0;  // and a k8 step
constexpr u32 kRowBytes = 128, kSwizzleMask = 7, kSwizzleShift = 0;
constexpr u32 kQOffset = 0;
constexpr u32 kDoOffset = 16384;
constexpr u32 kKOffset = 32768;
constexpr u32 kVOffset = 49152;
constexpr u32 kTileBytes = kTile * kRowBytes, kFloat = sizeof(float);
static_assert(kThreads == kWarps * kWarpSize && kTile % 16 == 0 && kHeadDimQk % 8 == 0 && kHeadDimQk == kHeadDimV);

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
// The element type's instructions under one name.
__device__ __forceinline__ void mma_k16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  mma_m16n8k16_f32_f16(d, a, b0, b1);
}
__device__ __forceinline__ void mma_k8(float (&d)[4], const u32 (&a)[2], u32 b0) { mma_m16n8k8_f32_f16(d, a, b0); }
__device__ __forceinline__ u32 pack_elements(float low, float high) { return cvt_rn_f16x2_f32(high, low); }

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
// Those of a batch entry that may count.
__device__ __forceinline__ i32 queries_of_batch(const Arguments& args, i32 /*batch*/) { return args.seq_q; }

// Workspaces hold whole blocks of rows: so many of each head, one batch entry after the other; a sequence's begin with
// those of its head.
__device__ __forceinline__ i32 workspace_batch(const Sequence& sequence) { return sequence.batch; }
template <i32 kRows>
__device__ __forceinline__ i32 blocks_of_queries(const Arguments& args) {
  return (args.seq_q + kRows - 1) / kRows;
}
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

// A tile of one plane of the bias, for a CTA: kBlockQ queries and kBlockKv keys; of a bias that repeats along the
// queries all of these. Those of a plane follow each other, so that those in flight share operands in L2.
struct BiasTile {
  i32 row_tile, key_tile, plane;

  __device__ __forceinline__ BiasTile(const Arguments& args, u32 number) {
    const u32 key_tiles = static_cast<u32>(args.key_tiles),
        row_tiles = static_cast<u32>((args.bias_rows + kBlockQ - 1) / kBlockQ);
    key_tile = static_cast<i32>(number % key_tiles);
    row_tile = static_cast<i32>(number / key_tiles % row_tiles);
    plane = static_cast<i32>(number / key_tiles / row_tiles);
  }
  // Those of the bias; 0 along which it repeats.
  __device__ __forceinline__ i32 batch(const Arguments& args) const {
    return args.bias_batch == 1 ? 0 : plane / args.bias_heads;
  }
  __device__ __forceinline__ i32 head(const Arguments& args) const {
    return args.bias_heads == 1 ? 0 : plane % args.bias_heads;
  }
};

// The tiles of S that share one of the bias, one after the other: of one batch entry or of all, of one head or of all,
// of one row of tiles or of all.
struct ScoreTiles {
  i32 batch, head, row_tile, key_tile;  // of the one that is worked on

  __device__ __forceinline__ ScoreTiles(const Arguments& args, const BiasTile& tile)
      : batch(tile.batch(args)), head(tile.head(args)), row_tile(tile.row_tile), key_tile(tile.key_tile) {}
  // Goes on to one in which some query sees some key, from this one on; false if there is none.
  __device__ __forceinline__ bool find(const Arguments& args) {
    while (batch < args.batch) {
      if (has_pairs(args)) return true;
      advance(args);
    }
    return false;
  }
  __device__ __forceinline__ bool next(const Arguments& args) {
    advance(args);
    return differ(args) ? find(args) : batch < args.batch;
  }
  // Whether one of these tiles may see other pairs than the next one.
  __device__ __forceinline__ static bool differ(const Arguments& args) { return args.bias_rows == 1; }

 private:
  __device__ __forceinline__ void advance(const Arguments& args) {
    if (args.bias_rows == 1) {
      if (++row_tile < (queries_of_batch(args, batch) + kBlockQ - 1) / kBlockQ) return;
      row_tile = 0;
    }
    if (args.bias_heads == 1) {
      if (++head < args.heads_q) return;
      head = 0;
    }
    batch = args.bias_batch == 1 ? batch + 1 : args.batch;
  }
  __device__ __forceinline__ bool has_pairs(const Arguments& args) const {
    const Sequence sequence(args, batch);
    const i32 first = row_tile * kBlockQ, queries = query_count(args, sequence);
    if (first >= queries) return false;
    const KeyBlocks blocks(args, sequence, first, (queries - first > kBlockQ ? first + kBlockQ : queries) - 1);
    return blocks.begin <= key_tile && key_tile < blocks.end;
  }
};
// What the exponents of P gain beside scores and LSE, in powers of two.
// ALiBi: a score loses its head's slope times the keys between it and the query's diagonal, which ends at the last key
// of the sequence. In powers of two.
__device__ __forceinline__ float alibi_slope(const Arguments& args, const Sequence& sequence, i32 head) {
  return 1.44269504088896340736f *
      ld_global_f32(args.alibi_slopes + sequence.batch * args.alibi_slopes_stride_batch +
      head * args.alibi_slopes_stride_head);
}
// The key of a query's diagonal, which may lie beside all keys of the sequence.
__device__ __forceinline__ i32 alibi_diagonal(const Arguments& args, const Sequence& sequence, i32 query) {
  return query + (key_count(args, sequence) - query_count(args, sequence));
}
// Tensors with an element for each pair of a query and a key of a head. A dimension along which one repeats has a
// stride of 0. Elements of keys lie one after the other. What is read belongs to the sequence, whatever the
// coordinates: those of no query or no key are the last ones'. Kernels hide such pairs, or multiply their P by rows of
// zeros, which takes a number.
__device__ __forceinline__ i32 last_of(i32 count) { return count > 0 ? count - 1 : 0; }
__device__ __forceinline__ i32 clamped(i32 x, i32 count) { return x < count ? x : last_of(count); }
__device__ __forceinline__ const char* bias_of_query(const Arguments& args, const Sequence& sequence, i32 head,
    i32 query) {
  const i64 offset = sequence.pair_offset(args.bias_stride_batch) + head * args.bias_stride_head;
  return static_cast<const char*>(args.bias) +
      2 * (offset + clamped(query, query_count(args, sequence)) * args.bias_stride_row);
}
// In natural units; -inf hides the key.
__device__ __forceinline__ float bias_of_key(const char* of_query, i32 key) {
  return cvt_f32_low_f16(ld_global_b16(of_query + 2 * static_cast<i64>(key)));
}
// What the exponent of a pair's P gains: powers of two, -inf of a hidden one.
__device__ __forceinline__ float pair_gain(const Arguments& args, const Sequence& sequence, i32 head, i32 query,
    i32 key) {
  const i32 stored = clamped(key, key_count(args, sequence));
  constexpr float kLog2E = 1.44269504088896340736f;
  return kLog2E * bias_of_key(bias_of_query(args, sequence, head, query), stored);
}

struct ExponentTerms {
  float slope, from_diagonal;  // from_diagonal: the distance of a key from the diagonal of a query
  const Arguments& args;
  Sequence sequence;
  i32 head, query, key;

  // The terms of a query and a key; those of others are found by how far they lie behind these.
  __device__ __forceinline__ ExponentTerms(const Arguments& args, const Sequence& sequence, i32 head, float slope,
      i32 query, i32 key)
      : slope(slope), from_diagonal(static_cast<float>(key - alibi_diagonal(args, sequence, query))), args(args),
        sequence(sequence), head(head), query(query), key(key) {}
  __device__ __forceinline__ float gain(i32 queries, i32 keys) const {
    return pair_gain(args, sequence, head, query + queries, key + keys) -
        slope * abs_f32(from_diagonal + static_cast<float>(keys - queries));
  }
};

// Changes the scores q·k of a block before they are masked: into tanh(scale q·k / softcap), of which softmax takes the
// exponentials of softcap times as much.
struct ScoreFunction {
  float tanh_scale;

  __device__ __forceinline__ explicit ScoreFunction(const Arguments& args) : tanh_scale(args.tanh_scale) {}
  __device__ __forceinline__ void modify(float& score) const { score = tanh_approx_f32(score * tanh_scale); }
  template <typename Scores, u32 kCount>
  __device__ __forceinline__ void modify(Scores (&scores)[kCount]) const {
#pragma unroll
    for (u32 i = 0; i < kCount; ++i) modify(scores[i]);
  }
  // P times the derivative of the change, 1 - tanh², from the changed score; 0 of a hidden one, whose square is
  // infinite.
  __device__ __forceinline__ float slope(float p, float changed) const {
    return p * fma_rn_sat_f32(-changed, changed, 1.0f);
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

// What all keys need to know of a query: P = exp2(c s - lse_log2), dS = P (dP - delta). A query that sees no key, or
// does not exist, has an LSE of +inf: its P is 0.
struct QueryStatistics {
  float lse_log2, delta;

  // An exponent is positive only by what rounding left of LSE: it counts as negative, so that P does not exceed 1.
  __device__ __forceinline__ float probability(float score, float scale_log2) const {
    return ex2_approx_ftz_f32(-abs_f32(fma_rn_f32(score, scale_log2, -lse_log2)));
  }
  // The same, where the exponent gains so much beside.
  __device__ __forceinline__ float probability(float score, float scale_log2, float gain) const {
    if (lse_log2 == -negative_infinity()) return 0;  // whatever the tensors hold for such a query
    return ex2_approx_ftz_f32(-abs_f32(fma_rn_f32(score, scale_log2, gain - lse_log2)));
  }
};
// Delta of query r of a block of kRows, behind its LSE.
__device__ __forceinline__ float delta_of(const float* statistics_of_block, i32 r) {
  return ld_weak_global_f32(statistics_of_block + 2 * r + 1);
}
// LSE·log2(e) of query r of a block of kRows, before its delta.
__device__ __forceinline__ float lse_log2_of(const float* statistics_of_block, i32 r) {
  return ld_weak_global_f32(statistics_of_block + 2 * r);
}
// LSE and delta of the block of kRows queries that a query lies in, as backward_delta leaves them.
__device__ __forceinline__ const float* statistics_of_query(const Arguments& args, const Sequence& sequence, i32 head,
    i32 query) {
  const i64 blocks = blocks_of_queries<kRows>(args),
      block_of_head = (static_cast<i64>(workspace_batch(sequence)) * args.heads_q + head) * blocks;
  return args.statistics + 2 * kRows * (block_of_head + first_block_of_queries<kRows>(sequence) + query / kRows);
}

// Offsets are in elements.
__device__ __forceinline__ const char* row_pointer(const void* tensor, i64 sequence_offset, i64 head_offset,
    i64 row_offset) {
  return static_cast<const char*>(tensor) + kElementBytes * (sequence_offset + head_offset + row_offset);
}

__device__ __forceinline__ void load_tiles(const Arguments& args, const ScoreTiles& at, u32 shared, i32 stage) {
  const Sequence sequence(args, at.batch);
  const i32 head_kv = at.head / args.group_size, first_query = at.row_tile * kTile, first_key = at.key_tile * kTile;
  const i64 query = first_query, key = first_key;
  TilePairStream<kTile>(row_pointer(args.q, sequence.query_offset(args.q_stride_batch, args.q_stride_row),
      at.head * args.q_stride_head, query * args.q_stride_row), kElementBytes * args.q_stride_row,
      row_pointer(args.d_o, sequence.query_offset(args.d_o_stride_batch, args.d_o_stride_row),
      at.head * args.d_o_stride_head, query * args.d_o_stride_row), kElementBytes * args.d_o_stride_row,
      query_count(args, sequence) - first_query)
      .load_next(shared + kQOffset + stage * kTileBytes, shared + kDoOffset + stage * kTileBytes);
  TilePairStream<kTile>(row_pointer(args.k, sequence.key_offset(args.k_stride_batch, args.k_stride_row),
      head_kv * args.k_stride_head, key * args.k_stride_row), kElementBytes * args.k_stride_row,
      row_pointer(args.v, sequence.key_offset(args.v_stride_batch, args.v_stride_row), head_kv * args.v_stride_head,
      key * args.v_stride_row), kElementBytes * args.v_stride_row, key_count(args, sequence) - first_key)
      .load_next(shared + kKOffset + stage * kTileBytes, shared + kVOffset + stage * kTileBytes);
}

// Adds P ∘ (dP - delta) of a tile.
__device__ __forceinline__ void add_tile(const Arguments& args, const ScoreTiles& at, u32 shared, i32 stage,
    ScoreFragments& sums) {
  const Sequence sequence(args, at.batch);
  const i32 warp_row = static_cast<i32>(warp_index()) * kWarpRows, lane = static_cast<i32>(lane_index());
  const QueryFragments q(shared + kQOffset + stage * kTileBytes, warp_row),
      d_o(shared + kDoOffset + stage * kTileBytes, warp_row);
  ScoreFragments s = {}, dp = {};
  ScoreFunction score(args);
  gemm_qk(s, q, shared + kKOffset + stage * kTileBytes);     // S = Q Kᵀ
  score.modify(s);
  gemm_qk(dp, d_o, shared + kVOffset + stage * kTileBytes);  // dP = dO Vᵀ
  const float slope = alibi_slope(args, sequence, at.head);
  const i32 first_key = at.key_tile * kTile + lane % 4 * 2;
#pragma unroll
  for (i32 half = 0; half < 2; ++half) {
    const i32 query = at.row_tile * kTile + warp_row + 8 * half + lane / 4;
    if (query >= query_count(args, sequence)) continue;
    const float* statistics = statistics_of_query(args, sequence, at.head, query);
    const QueryStatistics of_query{lse_log2_of(statistics, query % kRows), delta_of(statistics, query % kRows)};
    const HiddenKeys hidden(args, sequence, query, first_key);
    const ExponentTerms terms(args, sequence, at.head, slope, query, first_key);
#pragma unroll
    for (i32 n = 0; n < kKeyTiles; ++n) {
#pragma unroll
      for (i32 e = 0; e < 2; ++e) {
        if (hidden.has(8 * n + e)) continue;
        const float p = of_query.probability(s[0][n][2 * half + e], args.softmax_scale_log2, terms.gain(0, 8 * n + e));
        sums[0][n][2 * half + e] = fma_rn_f32(p, dp[0][n][2 * half + e] - of_query.delta, sums[0][n][2 * half + e]);
      }
    }
  }
}

__device__ __forceinline__ void store_element(char* to, float x) {
  st_global_b16(to, static_cast<u16>(cvt_rn_f16x2_f32(0.0f, x)));
}

// A row for all queries: sums over the rows of the CTA, by its lanes, then by its warps, in a fixed order.
__device__ __forceinline__ void store_sums_of_rows(const Arguments& args, char* row, i32 first_key, u32 shared,
    const ScoreFragments& sums) {
  const u32 lane = lane_index(), of_warp = shared + kFloat * kTile * warp_index();
#pragma unroll
  for (i32 n = 0; n < kKeyTiles; ++n) {
#pragma unroll
    for (i32 e = 0; e < 2; ++e) {
      float sum = sums[0][n][e] + sums[0][n][2 + e];
      sum += shfl_sync_bfly_f32<4>(sum);
      sum += shfl_sync_bfly_f32<8>(sum);
      sum += shfl_sync_bfly_f32<16>(sum);
      if (lane < 4) st_shared_b32(of_warp + kFloat * (8 * n + 2 * lane + e), f32_to_bits(sum));
    }
  }
  bar_sync();
  for (i32 key = static_cast<i32>(thread_index()); key < kTile && first_key + key < args.seq_kv; key += kThreads) {
    float sum = 0;
    for (i32 warp = 0; warp < kWarps; ++warp) sum += bits_to_f32(ld_shared_b32(shared + kFloat * (warp * kTile + key)));
    store_element(row + kBiasBytes * static_cast<i64>(first_key + key), sum);
  }
}

__device__ __forceinline__ void store_tile(const Arguments& args, char* plane, i32 first_query, i32 first_key,
    const ScoreFragments& sums) {
  const i32 lane = static_cast<i32>(lane_index()),
      first_row = first_query + static_cast<i32>(warp_index()) * kWarpRows + lane / 4;
#pragma unroll
  for (i32 half = 0; half < 2; ++half) {
    const i32 query = first_row + 8 * half;
    if (query >= args.seq_q) continue;
    char* const row = plane + kBiasBytes * (query * args.d_bias_stride_row);
#pragma unroll
    for (i32 n = 0; n < kKeyTiles; ++n) {
#pragma unroll
      for (i32 e = 0; e < 2; ++e) {
        const i32 key = first_key + 8 * n + lane % 4 * 2 + e;
        if (key < args.seq_kv) store_element(row + kBiasBytes * static_cast<i64>(key), sums[0][n][2 * half + e]);
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(kThreads) attune_backward_bias(const __grid_constant__ Arguments args) {
  const BiasTile tile(args, block_index());
  const u32 shared = shared_base();
  ScoreTiles ahead(args, tile);
  ScoreFragments sums = {};
  bool any = ahead.find(args);
  if (any) load_tiles(args, ahead, shared, 0);
  cp_async_commit_group();
  i32 stage = 0;
  while (any) {
    const ScoreTiles now = ahead;
    any = ahead.next(args);
    if (kStages > 1) {
      if (any) load_tiles(args, ahead, shared, stage ^ 1);
      cp_async_commit_group();
      cp_async_wait_group<1>();
    } else {
      cp_async_wait_group<0>();
    }
    bar_sync();
    add_tile(args, now, shared, stage, sums);
    bar_sync();  // all have read the tiles
    if (kStages > 1) {
      stage ^= 1;
    } else {
      if (any) load_tiles(args, ahead, shared, 0);
      cp_async_commit_group();
    }
  }

  char* const elements = static_cast<char*>(args.d_bias) +
      kBiasBytes * (tile.batch(args) * args.d_bias_stride_batch + tile.head(args) * args.d_bias_stride_head);
  if (args.bias_rows == 1) {
    store_sums_of_rows(args, elements, tile.key_tile * kTile, shared, sums);
  } else {
    store_tile(args, elements, tile.row_tile * kTile, tile.key_tile * kTile, sums);
  }
}
static_assert(sizeof(Arguments) == kArgumentBytes, "the host packs the arguments as this compiler lays them out");

}  // namespace attune_3ca23cf9eabe9071
