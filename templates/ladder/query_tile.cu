// The CTA's tile of queries. Tiles of a head are neighbours in the grid, then come the heads, then the batch.
struct QueryTile {
  i32 batch, head, head_kv, batch_head;
  i32 first_row, rows;  // rows that exist

  __device__ __forceinline__ explicit QueryTile(const Arguments& args) {
    const u32 tile = block_index() % static_cast<u32>(args.query_tiles);
    batch_head = static_cast<i32>(block_index() / static_cast<u32>(args.query_tiles));
    batch = batch_head / args.heads_q;
    head = batch_head - batch * args.heads_q;
    head_kv = head / args.group_size;
    first_row = static_cast<i32>(tile) * kRowsPerTile;
    rows = args.seq_q - first_row < kRowsPerTile ? args.seq_q - first_row : kRowsPerTile;
  }
};
