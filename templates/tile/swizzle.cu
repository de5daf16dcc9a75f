// A tile in shared memory: rows of kChunks chunks of 16 bytes (eight elements). ldmatrix reads one chunk of eight consecutive rows at
// once; the chunk's place in its row is permuted so that these eight lie in different banks. Rows of an odd number of chunks need no
// permutation (kSwizzleMask is 0).
__device__ __forceinline__ u32 tile_offset(u32 row, u32 chunk) {
  return row * kRowBytes + ((chunk ^ ((row >> kSwizzleShift) & kSwizzleMask)) << 4);
}

// A lane's place in a tile (row below 16, chunk 0 or 1), and the places that lie whole multiples of 8 rows and 2 chunks further: their
// permutation is the lane's own. Where rows are a power of two long, the step to another chunk is one xor on the whole address.
struct TileCursor {
  static constexpr bool kXor = (kRowBytes & (kRowBytes - 1)) == 0 && kSwizzleMask != 0;
  u32 tile, row, chunk, address;

  __device__ __forceinline__ TileCursor(u32 tile, u32 row, u32 chunk)
      : tile(tile), row(row), chunk(chunk), address(tile + tile_offset(row, chunk)) {}
  __device__ __forceinline__ u32 at(u32 rows, u32 chunks) const {
    return kXor ? (address ^ (chunks << 4)) + rows * kRowBytes : tile + tile_offset(row + rows, chunk + chunks);
  }
};
