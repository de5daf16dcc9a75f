// The visible blocks of keys from the last one down.
i32 block = rows.blocks.end - 1;
mainloop.begin<kPartialBlocks>(rows, block);
block = rows.before(block);
if (kPartialBlocks)
  for (; block >= rows.blocks.unmasked_end; block = rows.before(block)) mainloop.step<true>(rows, block);
for (; block >= rows.blocks.unmasked_begin; block = rows.before(block)) mainloop.step<false>(rows, block);
//% if masked_begin
for (; block >= rows.blocks.begin; block = rows.before(block)) mainloop.step<true>(rows, block);
//% end
