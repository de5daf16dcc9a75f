// The blocks of keys from the last one down.
skip_blocks(consumer, rows.unused_blocks);
clear(mainloop.o);
if (rows.any()) {
  i32 block = rows.blocks.end - 1;
  mainloop.begin<kPartialBlocks>(rows, block--);
  if (kPartialBlocks)
    for (; block >= rows.blocks.unmasked_end; --block) mainloop.step<true>(rows, block);
//% if promoted
  while (block >= rows.blocks.unmasked_begin) {
    // Of masked blocks there are few: they count as none.
    const i32 left = block + 1 - rows.blocks.unmasked_begin, until = block - (left < kPromotionBlocks ? left : kPromotionBlocks);
    for (; block > until; --block) mainloop.step<false>(rows, block);
    if (block < rows.blocks.unmasked_begin) break;
    mainloop.end();
    sums.promote(mainloop.o, mainloop.softmax);
    clear(mainloop.o);
    mainloop.begin<false>(rows, block--);
  }
//% else
  for (; block >= rows.blocks.unmasked_begin; --block) mainloop.step<false>(rows, block);
//% end
//% if masked_begin
  for (; block >= rows.blocks.begin; --block) mainloop.step<true>(rows, block);
//% end
  mainloop.end();
//% if promoted
  sums.finish(mainloop.o, mainloop.softmax);
//% end
} else {
  mainloop.softmax.row_sum[0] = mainloop.softmax.row_sum[1] = 0;
  fence_proxy_async();  // no product waited for the loads of Q: the release must not overtake them
  bar_warp_sync();
}
//% if masked_begin
skip_blocks(consumer, rows.unused_first_blocks);
//% end
