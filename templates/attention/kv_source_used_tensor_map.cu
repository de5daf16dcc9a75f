// The coordinates of rows in tensor maps that end where a sequence does: what lies behind, which may be NaN, is copied as zeros, as 0·NaN is NaN. A
// batch entry has `stored` rows. Its rows are counted in two dimensions, both a row wide, of which the first one ends at `stored`, and the map begins as
// many rows before the tensor: row r of a sequence with `size` rows has the coordinates stored - size + r and size.
struct MapPlace {
  i32 row, size, batch;
};
__device__ __forceinline__ MapPlace place_of_queries(const Arguments& args, const Sequence& sequence, i32 row) {
  return {stored_queries(args) - sequence.queries + row, sequence.queries, sequence.batch};
}
__device__ __forceinline__ MapPlace place_of_keys(const Arguments& args, const Sequence& sequence, i32 block) {
  return {stored_keys(args) - sequence.keys + block * kBlockKv, sequence.keys, sequence.batch};
}

// Copies a box of a tile: the columns of a panel.
__device__ __forceinline__ void load_box(u32 to, const TensorMap& map, u32 full, i32 column, i32 head, MapPlace place) {
  cp_async_bulk_tensor_5d_load(to, map, full, column, head, place.row, place.size, place.batch);
}
__device__ __forceinline__ void load_box_multicast(u32 to, const TensorMap& map, u32 full, u16 ctas, i32 column, i32 head, MapPlace place) {
  cp_async_bulk_tensor_5d_load_multicast(to, map, full, ctas, column, head, place.row, place.size, place.batch);
}
