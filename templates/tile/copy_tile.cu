// Copies kRows rows of a tensor, row_bytes apart, into a tile of shared memory by kWorkers threads, of which this is `worker`.
// Rows from `existing` on are filled with zeros (0 * NaN is NaN: what lies beyond a tensor must not reach a product).
template <i32 kRows, bool kAllExist, i32 kWorkers>
__device__ __forceinline__ void load_tile(u32 to, const char* from, i64 row_bytes, i32 existing, i32 worker) {
  constexpr i32 kCopies = (kRows * kChunks + kWorkers - 1) / kWorkers;
#pragma unroll
  for (i32 i = 0; i < kCopies; ++i) {
    const ChunkIndex at = chunk_index<kWorkers>(worker, i);
    if (kRows * kChunks % kWorkers != 0 && at.row >= kRows) break;
    load_chunk(to + tile_offset(at.row, at.chunk), from + at.row * row_bytes + at.chunk * 16, kAllExist || at.row < existing);
  }
}

// The other way: the first `existing` rows of a tile of shared memory to global memory.
template <i32 kRows, bool kAllExist, i32 kWorkers>
__device__ __forceinline__ void store_tile(char* to, u32 from, i64 row_bytes, i32 existing, i32 worker) {
  constexpr i32 kCopies = (kRows * kChunks + kWorkers - 1) / kWorkers;
#pragma unroll
  for (i32 i = 0; i < kCopies; ++i) {
    const ChunkIndex at = chunk_index<kWorkers>(worker, i);
    if (kRows * kChunks % kWorkers != 0 && at.row >= kRows) break;
    if (kAllExist || at.row < existing)
      store_chunk(to + at.row * row_bytes + at.chunk * 16, ld_shared_v4_b32(from + tile_offset(at.row, at.chunk)));
  }
}
