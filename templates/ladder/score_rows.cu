// S and P have a row of fp32 for each query of each head, of which only the keys that the query attends to are ever touched. Rows start at
// multiples of 16 bytes.
__device__ __forceinline__ float* score_row(const Arguments& args, const QueryTile& tile, i32 row) {
  const i64 pitch = (static_cast<i64>(args.seq_kv) + 3) & ~static_cast<i64>(3);
  return args.scores + (static_cast<i64>(tile.batch_head) * args.seq_q + tile.first_row + row) * pitch;
}
// Keys [0, attended_keys) are attended to; a row that pads the tile attends to none.
__device__ __forceinline__ i32 attended_keys(const Arguments& args, const QueryTile& tile, i32 row) {
  return row < tile.rows ? last_key(args, tile.sequence, tile.first_row + row) + 1 : 0;
}
