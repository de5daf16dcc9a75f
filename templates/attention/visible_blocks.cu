// The blocks that a tile walks through: those of which the attention mask shows a pair, a bit each, which kernels/visible_blocks has left.
struct VisibleBlocks {
  const i32* words;

  VisibleBlocks() = default;
  // tile: among the ${tiles} of a head.
  __device__ __forceinline__ VisibleBlocks(const Arguments& args, const Sequence& sequence, i32 head, i32 tile) {
    const i32 batch_of_mask = args.attention_mask_batch == 1 ? 0 : sequence.batch, head_of_mask = args.attention_mask_heads == 1 ? 0 : head;
    const i64 of_head = static_cast<i64>(batch_of_mask) * args.attention_mask_heads + head_of_mask;
    words = args.visible_blocks + (of_head * ${tiles_of_head} + ${tile_of_mask}) * ((${walked_rows} + 32 * ${walked_block} - 1) / (32 * ${walked_block}));
  }
//% if walks_down
  // The last one before `block`, or -1.
  __device__ __forceinline__ i32 before(i32 block) const {
    if (block <= 0) return -1;
    i32 word = (block - 1) / 32;
    u32 bits = static_cast<u32>(ld_global_i32(words + word)) << (31 - (block - 1) % 32) >> (31 - (block - 1) % 32);
    while (bits == 0 && word > 0) bits = static_cast<u32>(ld_global_i32(words + --word));
    return bits == 0 ? -1 : 32 * word + static_cast<i32>(bfind_b32(bits));
  }
  // How many of [begin, end).
  __device__ __forceinline__ i32 count(i32 begin, i32 end) const {
    i32 blocks = 0;
    for (i32 block = before(end); block >= begin; block = before(block)) ++blocks;
    return blocks;
  }
//% else
  // The first one from `block` on, or `end`.
  __device__ __forceinline__ i32 from(i32 block, i32 end) const {
    while (block < end) {
      const u32 bits = static_cast<u32>(ld_global_i32(words + block / 32)) >> block % 32 << block % 32;
      if (bits != 0) {
        const i32 found = block / 32 * 32 + static_cast<i32>(bfind_b32(bits & (0u - bits)));
        return found < end ? found : end;
      }
      block = (block / 32 + 1) * 32;
    }
    return end;
  }
//% end
};
