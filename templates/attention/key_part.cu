// Leaves of blocks of keys those of [begin, end).
__device__ __forceinline__ void keep_blocks(KeyBlocks& blocks, i32 begin, i32 end) {
  if (blocks.begin < begin) blocks.begin = begin;
  if (blocks.end > end) blocks.end = end;
  if (blocks.end <= blocks.begin) blocks.begin = blocks.end = begin;
  if (blocks.unmasked_begin < blocks.begin) blocks.unmasked_begin = blocks.begin;
  if (blocks.unmasked_begin > blocks.end) blocks.unmasked_begin = blocks.end;
  if (blocks.unmasked_end < blocks.begin) blocks.unmasked_end = blocks.begin;
  if (blocks.unmasked_end > blocks.end) blocks.unmasked_end = blocks.end;
}

//% if invariant
// A part of a tile's keys: those of kPartBlocks blocks, from a multiple of as many on, whichever blocks the tile attends to. It may have none of these.
//% else
// A part of a tile's keys. The args.key_parts parts of a tile follow each other; each has as many blocks as the others, but the first ones one
// more where the blocks do not divide evenly. Parts of a tile with few blocks may have none.
//% end
struct KeyPart {
  i32 tile, part;

  KeyPart() = default;
  __device__ __forceinline__ KeyPart(const Arguments& args, u32 number)
      : tile(static_cast<i32>(number / args.key_parts)), part(static_cast<i32>(number % args.key_parts)) {}

  // Leaves of the tile's blocks those of the part.
  __device__ __forceinline__ void limit(const Arguments& args, KeyBlocks& blocks) const {
//% if invariant
    keep_blocks(blocks, part * kPartBlocks, (part + 1) * kPartBlocks);
//% else
    const i32 count = blocks.end > blocks.begin ? blocks.end - blocks.begin : 0;
    const i32 share = count / args.key_parts, longer = count % args.key_parts;
    const i32 begin = blocks.begin + part * share + (part < longer ? part : longer);
    keep_blocks(blocks, begin, begin + share + (part < longer ? 1 : 0));
//% end
  }
};

//% if packed_sequences
// The place of a row's result of a part: (part, heads, queries of all sequences).
//% else
// The place of a row's result of a part: (part, batch, heads, queries).
//% end
__device__ __forceinline__ i64 partial_row(const Arguments& args, const Sequence& sequence, const KeyPart& part, i32 head, i64 row) {
//% if packed_sequences
  return static_cast<i64>(part.part) * args.heads_q * packed_query_rows(args) + packed_query_row(args, sequence, head, row);
//% else
  return static_cast<i64>(part.part) * args.batch * args.heads_q * packed_query_rows(args) + packed_query_row(args, sequence, head, row);
//% end
}
