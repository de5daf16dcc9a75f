// The place of the sums of a block of rows, where fragments are transposed: 16 of the head dim and 8 rows. head counts as workspaces have
// them, and has `blocks` blocks.
template <i32 kTileRows>
__device__ __forceinline__ i64 transposed_sums_place(i64 head, i32 blocks, i32 block) {
  return (head * blocks + block) * (kHeadDimQk * kTileRows);
}
// The place of a fragment among those of its block: of each 16 of the head dim all rows follow each other.
template <i32 kTileRows>
__device__ __forceinline__ i32 transposed_fragment_place(i32 sixteen_dims, i32 eight_rows) {
  return (sixteen_dims * (kTileRows / 8) + eight_rows) * kSumsOfFragment;
}
