// How the threads of a copy share the chunks of a tile: consecutive threads take consecutive chunks of a row. Where a row's chunks divide the
// number of threads, each thread keeps its column and goes down the rows.
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
  __device__ __forceinline__ i32 chunk(i32 i) const { return kColumns ? worker % kChunks : (worker + i * kWorkers) % kChunks; }
};

// Copies tile after tile of kRows rows of a tensor, row_bytes apart, into shared memory, by kWorkers threads of which this is `worker`.
// Rows from `existing` on are filled with zeros (0 * NaN is NaN: what lies beyond a tensor must not reach a product).
template <i32 kRows, bool kAllExist, i32 kWorkers>
struct TileStream {
  using Chunks = ThreadChunks<kRows, kWorkers>;
  Chunks chunks;
  const char* next;  // of this thread's first chunk where it keeps its column, else of the tile
  i64 row_bytes;
  i32 existing;      // rows from the next tile on

  __device__ __forceinline__ TileStream(const char* first, i64 row_bytes, i32 existing, i32 worker)
      : chunks{worker}, next(Chunks::kColumns ? first + chunks.row(0) * row_bytes + chunks.chunk(0) * 16 : first), row_bytes(row_bytes),
        existing(existing) {}

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
    if (kAllExist || row < existing) store_chunk(to + row * row_bytes + chunk * 16, ld_shared_v4_b32(from + tile_offset(row, chunk)));
  }
}
