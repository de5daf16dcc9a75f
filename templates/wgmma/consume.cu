// What a consumer warpgroup does with each tile.
__device__ __forceinline__ void consume(const Arguments& args, const Barriers& barriers, u32 shared, i32 index) {
  Mainloop mainloop(args, barriers, shared, index);
  Consumer& consumer = mainloop.consumer;
  ${consumer_tiles} tiles;
//% if adds_sums
  PromotedSums sums(args);
//% end
  if (index == kConsumers - 1) consumer.pass_order();
  for (i32 number; (number = tiles.next(args, barriers, consumer.q)) >= 0;) {
    const QueryTile tile(args, number);
    const RowsOfWarpgroup rows(args, tile, index);
    consumer.wait_q();
    consumer.load_query();
//% if dropout
    consumer.begin_dropout(args, tile);
//% end
//% if ascending_keys
    skip_blocks(consumer, rows.unused_first_blocks);
//% else
    skip_blocks(consumer, rows.unused_blocks);
//% end
    clear(mainloop.o);
    if (rows.any()) {
      //% include wgmma/walk_${key_walk}
      mainloop.end();
//% if adds_sums
      sums.finish(mainloop.o, mainloop.softmax);
//% end
    } else {
      mainloop.softmax.row_sum[0] = mainloop.softmax.row_sum[1] = 0;
      fence_proxy_async();  // no product waited for the loads of Q: the release must not overtake them
      bar_warp_sync();
    }
//% if ascending_keys
    skip_blocks(consumer, rows.unused_blocks);
//% else
    skip_blocks(consumer, rows.unused_first_blocks);
//% end
    consumer.release_q();
    store_rows(args, QueryTile(args, ${stored_tile}), rows.first_row, mainloop.o, mainloop.softmax);
//% if packed_sequences
    leave_record(barriers, number);
//% end
  }
  if (index == 0) consumer.wait_order();
}
