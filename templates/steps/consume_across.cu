// What a consumer warpgroup does with each tile: the blocks of keys from the last one down, masked ones first. A tile's last product and its
// stores wait until the first scores of the next tile have been issued.
struct PendingTile {
  i32 number = -1;
  i32 row = 0;  // this thread's first, in the sequence
};

__device__ __forceinline__ void finish(const Arguments& args, Walk& walk, PendingTile& pending) {
  walk.end();
  store_rows(args, QueryTile(args, pending.number), pending.row, walk.o, walk.softmax);
  pending.number = -1;
}

__device__ __forceinline__ void consume(const Arguments& args, const Barriers& barriers, u32 shared, i32 index) {
  Walk walk(args, barriers, shared, index);
  Consumer& consumer = walk.consumer;
  ConsumerTiles tiles;
  PendingTile pending;
  if (index == kConsumers - 1) consumer.pass_turn();
  for (i32 number; (number = tiles.next(args, barriers, consumer.q)) >= 0;) {
    const QueryTile tile(args, number);
    const RowsOfWarpgroup rows(args, tile, index);
    // The pending product holds a buffer of V until this warpgroup's first own block. By then no other may need that buffer filled anew.
    if (pending.number >= 0 && (rows.blocks == 0 || rows.unused_blocks >= kVStages)) finish(args, walk, pending);
    consumer.wait_q();
    consumer.load_query();
    const bool joined = pending.number >= 0;
    if (joined)
      skip_keys(consumer, rows.unused_blocks);
    else
      skip_blocks(consumer, rows.unused_blocks);
    i32 block = rows.blocks - 1;
    if (rows.blocks == 0) {
      clear(walk.o);
      walk.softmax.row_sum[0] = walk.softmax.row_sum[1] = 0;
      bar_warp_sync();
      consumer.release_q();
      store_rows(args, tile, rows.first_row, walk.o, walk.softmax);
      continue;
    }
    if (joined) {
      Softmax earlier;
      walk.join<kPartialBlocks>(number, rows.first_row, block--, earlier);
      skip_values(consumer, rows.unused_blocks);
      store_rows(args, QueryTile(args, pending.number), pending.row, walk.o, earlier);
    } else {
      walk.begin<kPartialBlocks>(number, rows.first_row, block--);
    }
    clear(walk.o);
    if (kPartialBlocks)
      for (; block >= rows.whole_blocks; --block) walk.step<true>(number, rows.first_row, block);
    for (; block >= 0; --block) walk.step<false>(number, rows.first_row, block);
    consumer.release_q();
    pending = {number, rows.first_row};
  }
  if (pending.number >= 0) finish(args, walk, pending);
  if (index == 0) consumer.wait_turn();
}
