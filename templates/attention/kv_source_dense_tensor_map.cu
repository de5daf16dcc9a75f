// The coordinates of rows in tensor maps. The rows of a sequence follow each other in memory.
struct MapPlace {
  i32 row, batch;
};
__device__ __forceinline__ MapPlace place_of_queries(const Arguments&, const Sequence& sequence, i32 row) { return {row, sequence.batch}; }
__device__ __forceinline__ MapPlace place_of_keys(const Arguments&, const Sequence& sequence, i32 block) { return {block * kBlockKv, sequence.batch}; }

// Copies a box of a tile: the columns of a panel.
__device__ __forceinline__ void load_box(u32 to, const TensorMap& map, u32 full, i32 column, i32 head, MapPlace place) {
  cp_async_bulk_tensor_4d_load(to, map, full, column, head, place.row, place.batch);
}
__device__ __forceinline__ void load_box_multicast(u32 to, const TensorMap& map, u32 full, u16 ctas, i32 column, i32 head, MapPlace place) {
  cp_async_bulk_tensor_4d_load_multicast(to, map, full, ctas, column, head, place.row, place.batch);
}
