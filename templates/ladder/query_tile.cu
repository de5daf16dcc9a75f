// The CTA's tile of queries. Tiles of a head are neighbours in the grid, then come the heads, then the batch.
struct QueryTile {
  Sequence sequence;
  i32 head, head_kv, batch_head;
  i32 first_row, rows;  // rows that exist

  __device__ __forceinline__ explicit QueryTile(const Arguments& args) {
    const u32 tile = block_index() % static_cast<u32>(args.query_tiles);
    batch_head = static_cast<i32>(block_index() / static_cast<u32>(args.query_tiles));
    sequence = Sequence(args, batch_head / args.heads_q);
    head = batch_head - sequence.batch * args.heads_q;
    head_kv = head / args.group_size;
    first_row = static_cast<i32>(tile) * kRowsPerTile;
    rows = query_count(args, sequence) - first_row < kRowsPerTile ? query_count(args, sequence) - first_row : kRowsPerTile;
  }
};
