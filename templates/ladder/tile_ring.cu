// Blocks of keys that some query of the tile attends to.
__device__ __forceinline__ i32 attended_blocks(const Arguments& args, const QueryTile& tile) {
  return (last_key(args, tile.sequence, tile.first_row + tile.rows - 1) + kBlockKv) / kBlockKv;
}

// Two tiles of shared memory for the tiles of a tensor that a loop walks over: one is read while the next is copied. The one barrier of a
// step says that a tile has landed for all threads, and that all have finished with the one before, whose place is filled next.
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
