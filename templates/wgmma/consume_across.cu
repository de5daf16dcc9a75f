// What a consumer warpgroup does with each tile: the blocks of keys from the last one down. A tile's last product and its
// stores wait until the first scores of the next tile have been issued.
struct PendingTile {
  i32 number = -1;
  i32 row = 0;  // this thread's first, in the sequence
};

__device__ __forceinline__ void finish(const Arguments& args, Mainloop& mainloop, PendingTile& pending) {
  mainloop.end();
  store_rows(args, QueryTile(args, ${stored_tile}), pending.row, mainloop.o, mainloop.softmax);
//% if packed_sequences
  leave_record(mainloop.consumer.barriers, pending.number);
//% end
  pending.number = -1;
}

__device__ __forceinline__ void consume(const Arguments& args, const Barriers& barriers, u32 shared, i32 index) {
  Mainloop mainloop(args, barriers, shared, index);
  Consumer& consumer = mainloop.consumer;
  ${consumer_tiles} tiles;
  PendingTile pending;
  if (index == kConsumers - 1) consumer.pass_order();
  for (i32 number; (number = tiles.next(args, barriers, consumer.q)) >= 0;) {
    const QueryTile tile(args, number);
    const RowsOfWarpgroup rows(args, tile, index);
    // The pending product holds a buffer of V until this warpgroup's first own block. By then no other may need that buffer filled anew.
    if (pending.number >= 0 && (!rows.any() || rows.unused_blocks >= kVStages)) finish(args, mainloop, pending);
    consumer.wait_q();
    consumer.load_query();
//% if dropout
    consumer.begin_dropout(args, tile);
//% end
    const bool joined = pending.number >= 0;
    if (joined)
      skip_keys(consumer, rows.unused_blocks);
    else
      skip_blocks(consumer, rows.unused_blocks);
    if (!rows.any()) {
      clear(mainloop.o);
      mainloop.softmax.row_sum[0] = mainloop.softmax.row_sum[1] = 0;
      fence_proxy_async();  // no product waited for the loads of Q: the release must not overtake them
      bar_warp_sync();
      consumer.release_q();
      store_rows(args, tile, rows.first_row, mainloop.o, mainloop.softmax);
//% if packed_sequences
      leave_record(barriers, number);
//% end
      continue;
    }
    i32 block = rows.blocks.end - 1;
    if (joined) {
      Softmax earlier;
      mainloop.join<kPartialBlocks>(rows, block--, earlier);
      skip_values(consumer, rows.unused_blocks);
      store_rows(args, QueryTile(args, ${stored_tile}), pending.row, mainloop.o, earlier);
//% if packed_sequences
      leave_record(barriers, pending.number);
//% end
    } else {
      mainloop.begin<kPartialBlocks>(rows, block--);
    }
    clear(mainloop.o);
//% if alibi_beyond
    for (; block >= rows.beyond_end; --block) mainloop.step<true>(rows, block);
    for (; block >= rows.beyond_begin; --block) mainloop.step<false>(rows, block);
//% if alibi_shared
    leave_blocks_beyond(args, rows, mainloop.softmax);
//% end
//% end
    if (kPartialBlocks)
      for (; block >= rows.blocks.unmasked_end; --block) mainloop.step<true>(rows, block);
    for (; block >= rows.blocks.unmasked_begin; --block) mainloop.step<false>(rows, block);
//% if masked_begin
    for (; block >= rows.blocks.begin; --block) mainloop.step<true>(rows, block);
//% end
    consumer.release_q();
    pending = {number, rows.first_row};
//% if masked_begin
    // Others still need the blocks before this warpgroup's: the product must not wait for the next tile with a buffer of V.
    if (rows.unused_first_blocks > 0) {
      finish(args, mainloop, pending);
      skip_blocks(consumer, rows.unused_first_blocks);
    }
//% end
  }
  if (pending.number >= 0) finish(args, mainloop, pending);
  if (index == 0) consumer.wait_order();
}
