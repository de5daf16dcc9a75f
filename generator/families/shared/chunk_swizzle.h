#pragma once

namespace attune {

/// How rows of 16-byte chunks lie in shared memory so that ldmatrix, which reads one chunk of eight rows at once, has
/// no bank conflict: chunk c of row r lies at c ^ ((r >> shift) & mask).
struct ChunkSwizzle {
  int mask = 0, shift = 0;
};

/// The swizzle of rows of `row_elements` 16-bit elements, a multiple of 8.
ChunkSwizzle chunk_swizzle(int row_elements);

}  // namespace attune
