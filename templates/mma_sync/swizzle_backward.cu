// A tile in shared memory: rows of chunks of 16 bytes (eight elements). ldmatrix reads one chunk of eight consecutive rows at once; the
// chunk's place in its row is permuted so that these eight lie in different banks. The permutation repeats after eight rows, and changes
// kMask + 1 neighbouring chunks, to a multiple of whose size all tiles are aligned.
template <u32 kBytes, u32 kMask, u32 kShift>
struct SwizzledRows {
  __device__ __forceinline__ static u32 offset(u32 row, u32 chunk) { return row * kBytes + ((chunk ^ ((row >> kShift) & kMask)) << 4); }

  // Whether a step of fewer than kChunksApart chunks from a multiple of kChunksApart never carries.
  template <u32 kChunksApart>
  static constexpr bool kReached = kChunksApart % (kMask + 1) == 0 || (kChunksApart & (kChunksApart - 1)) == 0;

  // A lane's place in a tile, and the places that lie constant numbers of rows (a multiple of 8) and of chunks further.
  struct Cursor {
    u32 start, chunk, swizzle, address;  // start: of the row

    __device__ __forceinline__ Cursor(u32 tile, u32 row, u32 chunk)
        : start(tile + row * kBytes), chunk(chunk), swizzle((row >> kShift) & kMask), address(start + ((chunk ^ swizzle) << 4)) {}
    // The sum of both numbers of chunks carries nothing among the permuted ones: an even number to 0 or 1, or as kReached says.
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
