// The coordinates of rows in tensor maps that end where a sequence does: what lies behind, which is of another sequence and may be NaN, is copied as zeros, as
// 0·NaN is NaN. All sequences together have `all` rows. They are counted in two dimensions, both a row wide, of which the first one ends at `all`, and the map
// begins as many rows before the tensor: row r of a sequence with `size` rows from row `begin` on has the coordinates all - size + r and begin + size. A box must
// begin within its sequence: of one that lies beside its tensor as a whole a GPU looks at where the map begins, where there may be no memory. A tile that has
// no row of its sequence is in no product: it takes the first rows of all.
struct MapPlace {
  i32 row, end;

  __device__ __forceinline__ MapPlace(i32 all, i32 begin, i32 size, i32 first) : row(first < size ? all - size + first : 0), end(first < size ? begin + size : all) {}
};
__device__ __forceinline__ MapPlace place_of_queries(const Arguments& args, const Sequence& sequence, i32 row) {
  return MapPlace(args.seq_q, sequence.first_query, sequence.queries, row);
}
__device__ __forceinline__ MapPlace place_of_keys(const Arguments& args, const Sequence& sequence, i32 block) {
  return MapPlace(args.seq_kv, sequence.first_key, sequence.keys, block * kBlockKv);
}

// Copies a box of a tile: the columns of a panel.
__device__ __forceinline__ void load_box(u32 to, const TensorMap& map, u32 full, i32 column, i32 head, MapPlace place) {
  cp_async_bulk_tensor_5d_load(to, map, full, column, head, place.row, place.end, 0);
}
