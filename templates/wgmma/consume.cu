// What a consumer warpgroup does with each tile.
__device__ __forceinline__ void consume(const Arguments& args, const Barriers& barriers, u32 shared, i32 index) {
  Mainloop mainloop(args, barriers, shared, index);
  Consumer& consumer = mainloop.consumer;
  ConsumerTiles tiles;
//% if promoted
  PromotedSums sums(args);
//% end
  if (index == kConsumers - 1) consumer.pass_order();
  for (i32 number; (number = tiles.next(args, barriers, consumer.q)) >= 0;) {
    const QueryTile tile(args, number);
    const RowsOfWarpgroup rows(args, tile, index);
    consumer.wait_q();
    consumer.load_query();
    //% include wgmma/walk_${key_walk}
    consumer.release_q();
    store_rows(args, QueryTile(args, opaque_i32(number)), rows.first_row, mainloop.o, mainloop.softmax);
  }
  if (index == 0) consumer.wait_order();
}
