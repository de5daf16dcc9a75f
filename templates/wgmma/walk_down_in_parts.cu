// The blocks of keys from the last one down, part by part: each is summed as if it were alone.
i32 block = rows.blocks.end - 1;
while (true) {
  i32 begin = block / kPartBlocks * kPartBlocks;  // of the part
  if (begin < rows.blocks.begin) begin = rows.blocks.begin;
  mainloop.begin<kPartialBlocks>(rows, block--);
  if (kPartialBlocks)
    for (; block >= rows.blocks.unmasked_end && block >= begin; --block) mainloop.step<true>(rows, block);
  for (; block >= rows.blocks.unmasked_begin && block >= begin; --block) mainloop.step<false>(rows, block);
//% if masked_begin
  for (; block >= begin; --block) mainloop.step<true>(rows, block);
//% end
  if (begin == rows.blocks.begin) break;
  mainloop.end();
  sums.promote(mainloop.o, mainloop.softmax);
  clear(mainloop.o);
}
