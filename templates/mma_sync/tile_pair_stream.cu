// Copies tile after tile of two tensors that are walked in step, kBlock rows of each, by all threads. kRowLanes neighbouring threads share a
// row, a power of two, so that each keeps its column and walks down the rows; where a row has fewer chunks, some have nothing to do. Rows
// beyond the last are filled with zeros, as TileStream does.
template <i32 kBlock>
struct TilePairStream {
  static constexpr i32 kRowsAtOnce = kThreads / kRowLanes, kSteps = (kBlock + kRowsAtOnce - 1) / kRowsAtOnce;
  i32 row, chunk;              // of this thread's first chunk in a tile
  const char *first, *second;  // that chunk
  i64 first_row_bytes, second_row_bytes;
  i32 existing;                // rows from this thread's first one on

  __device__ __forceinline__ TilePairStream(const char* first_tensor, i64 first_row_bytes, const char* second_tensor, i64 second_row_bytes, i32 rows)
      : row(static_cast<i32>(thread_index()) / kRowLanes), chunk(static_cast<i32>(thread_index()) % kRowLanes),
        first(first_tensor + row * first_row_bytes + chunk * 16), second(second_tensor + row * second_row_bytes + chunk * 16),
        first_row_bytes(first_row_bytes), second_row_bytes(second_row_bytes), existing(rows - row) {}

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
