// The blocks of keys from the first one up: CTAs that work on a head at the same time begin with the same keys, whatever their queries.
i32 block = rows.blocks.begin;
if (!kPartialBlocks || (block >= rows.blocks.unmasked_begin && block < rows.blocks.unmasked_end))
  mainloop.begin<false>(rows, block++);
else
  mainloop.begin<true>(rows, block++);
//% if masked_begin
for (; block < rows.blocks.unmasked_begin && block < rows.blocks.end; ++block) mainloop.step<true>(rows, block);
//% end
//% if promoted
while (block < rows.blocks.unmasked_end) {
  // There are few masked blocks: they count as none.
  const i32 left = rows.blocks.unmasked_end - block, until = block + (left < kPromotionBlocks ? left : kPromotionBlocks);
  for (; block < until; ++block) mainloop.step<false>(rows, block);
  if (block >= rows.blocks.unmasked_end) break;
  mainloop.end();
  sums.promote(mainloop.o, mainloop.softmax);
  clear(mainloop.o);
  mainloop.begin<false>(rows, block++);
}
//% else
for (; block < rows.blocks.unmasked_end; ++block) mainloop.step<false>(rows, block);
//% end
if (kPartialBlocks)
  for (; block < rows.blocks.end; ++block) mainloop.step<true>(rows, block);
