constexpr i32 kSumsOfFragment = 16 * 8;  // floats

// Rows of a head in the workspace: padded to whole tiles.
template <i32 kTileRows>
__device__ __forceinline__ i32 padded_rows(i32 rows) {
  return (rows + kTileRows - 1) / kTileRows * kTileRows;
}

// The place of the sums of a fragment: 16 rows from `row` on, and the columns of a chunk. head counts through all batch entries, and has
// `padded` rows.
__device__ __forceinline__ i64 sums_place(i64 head, i32 padded, i32 row, i32 chunk) {
  return ((head * padded + row) / 16 * kChunks + chunk) * kSumsOfFragment;
}
