constexpr i32 kThreads = kWarps * kWarpSize;
constexpr i32 kWarpRows = 16, kRowTiles = 1;     // a warp owns one m16 tile of queries
constexpr i32 kRowsPerTile = kWarps * kWarpRows;
constexpr i32 kKeyTiles = kBlockKv / 8;          // n8 tiles of S
constexpr i32 kChunks = kHeadDim / 8;            // n8 tiles of O; 16-byte chunks of a row
constexpr bool kDimTail = kHeadDim % 16 != 0;    // where it is no multiple of 16
constexpr u32 kRowBytes = ${row_bytes}, kSwizzleMask = ${swizzle_mask}, kSwizzleShift = ${swizzle_shift};
static_assert(kBlockKv % 16 == 0 && kHeadDim % 8 == 0);

using ScoreFragments = float[kRowTiles][kKeyTiles][4];
using OutputFragments = float[kRowTiles][kChunks][4];
