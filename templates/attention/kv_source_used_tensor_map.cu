// The coordinates of rows in tensor maps that end where a sequence does: what lies behind, which may be NaN, is copied as zeros, as 0·NaN is NaN. A
// batch entry has `stored` rows. Its rows are counted in two dimensions, both a row wide, of which the first one ends at `stored`, and the map begins as
// many rows before the tensor: row r of a sequence with `size` rows has the coordinates stored - size + r and size. A box must begin within its sequence:
// of one that lies beside its tensor as a whole a GPU looks at where the map begins, where there may be no memory. A tile that has no row of its sequence is
// in no product, and copied as it lies.
struct MapPlace {
  i32 row, size, batch;

  __device__ __forceinline__ MapPlace(i32 batch, i32 stored, i32 existing, i32 first) : size(first < existing ? existing : stored), batch(batch) { row = stored - size + first; }
};
__device__ __forceinline__ MapPlace place_of_queries(const Arguments& args, const Sequence& sequence, i32 row) {
  return MapPlace(sequence.batch, stored_queries(args, sequence), sequence.queries, row);
}
__device__ __forceinline__ MapPlace place_of_keys(const Arguments& args, const Sequence& sequence, i32 block) {
  return MapPlace(sequence.batch, stored_keys(args, sequence), sequence.keys, block * kBlockKv);
}

// Copies a box of a tile: the columns of a panel.
__device__ __forceinline__ void load_box(u32 to, const TensorMap& map, u32 full, i32 column, i32 head, MapPlace place) {
  cp_async_bulk_tensor_5d_load(to, map, full, column, head, place.row, place.size, place.batch);
}
