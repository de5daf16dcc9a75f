// The blocks of keys from the last one down.
i32 block = rows.blocks.end - 1;
mainloop.begin<kPartialBlocks>(rows, block--);
//% if alibi_beyond
for (; block >= rows.beyond_end; --block) mainloop.step<true>(rows, block);
for (; block >= rows.beyond_begin; --block) mainloop.step<false>(rows, block);
//% if alibi_shared
leave_blocks_beyond(args, rows, mainloop.softmax);
//% end
//% end
if (kPartialBlocks)
  for (; block >= rows.blocks.unmasked_end; --block) mainloop.step<true>(rows, block);
//% if promoted
while (block >= rows.blocks.unmasked_begin) {
  // There are few masked blocks: they count as none.
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
