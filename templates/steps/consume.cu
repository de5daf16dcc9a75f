// What a consumer warpgroup does with each tile: the blocks of keys from the last one down, masked ones first.
__device__ __forceinline__ void consume(const Arguments& args, const Barriers& barriers, u32 shared, i32 index) {
  Walk walk(args, barriers, shared, index);
  Consumer& consumer = walk.consumer;
  ConsumerTiles tiles;
  if (index == kConsumers - 1) consumer.pass_turn();
  for (i32 number; (number = tiles.next(args, barriers, consumer.q)) >= 0;) {
    const QueryTile tile(args, number);
    const RowsOfWarpgroup rows(args, tile, index);
    consumer.wait_q();
    consumer.load_query();
    skip_blocks(consumer, rows.unused_blocks);
    clear(walk.o);
    if (rows.blocks > 0) {
      i32 block = rows.blocks - 1;
      walk.begin<kPartialBlocks>(number, rows.first_row, block--);
      if (kPartialBlocks)
        for (; block >= rows.whole_blocks; --block) walk.step<true>(number, rows.first_row, block);
      for (; block >= 0; --block) walk.step<false>(number, rows.first_row, block);
      walk.end();
    } else {
      walk.softmax.row_sum[0] = walk.softmax.row_sum[1] = 0;
      bar_warp_sync();
    }
    consumer.release_q();
    store_rows(args, QueryTile(args, opaque_i32(number)), rows.first_row, walk.o, walk.softmax);
  }
  if (index == 0) consumer.wait_turn();
}
