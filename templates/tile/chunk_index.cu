// Which chunk of a tile a thread moves as its i-th: consecutive threads take consecutive chunks of a row.
struct ChunkIndex {
  i32 row, chunk;
};
template <i32 kWorkers>
__device__ __forceinline__ ChunkIndex chunk_index(i32 worker, i32 i) {
  if (kWorkers % kChunks == 0) return {worker / kChunks + i * (kWorkers / kChunks), worker % kChunks};  // the same column each time
  const i32 index = worker + i * kWorkers;
  return {index / kChunks, index % kChunks};
}
