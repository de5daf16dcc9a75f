// A tile in shared memory: rows of kChunks chunks of 16 bytes (eight elements). ldmatrix reads one chunk of eight consecutive rows at
// once; the chunk's place in its row is permuted so that these eight lie in different banks. Rows of an odd number of chunks need no
// permutation (kSwizzleMask is 0).
__device__ __forceinline__ u32 tile_offset(u32 row, u32 chunk) {
  return row * kRowBytes + ((chunk ^ ((row >> kSwizzleShift) & kSwizzleMask)) << 4);
}
