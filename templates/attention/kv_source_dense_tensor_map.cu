// The coordinates of rows in tensor maps. The rows of a sequence follow each other in memory.
struct MapPlace {
  i32 row, batch;
};
__device__ __forceinline__ MapPlace place_of_queries(const Sequence& sequence, i32 row) { return {row, sequence.batch}; }
__device__ __forceinline__ MapPlace place_of_keys(const Sequence& sequence, i32 block) { return {block * kBlockKv, sequence.batch}; }
