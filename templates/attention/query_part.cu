// The queries of a head that a tile of keys walks through are split into kQueryParts parts, each a tile of its own. Parts follow each other; each has
// as many blocks as the others, but the first ones one more where the blocks do not divide evenly, and none where there are few. No part begins
// earlier in a later tile: where tiles add to a block of dQ one after the other, the last first, each waits for tiles of the same or an earlier part.
template <bool kMaskRagged>
__device__ __forceinline__ void keep_part(QueryBlocks<kMaskRagged>& blocks, i32 part) {
  const i32 count = blocks.end > blocks.begin ? blocks.end - blocks.begin : 0;
  const i32 share = count / kQueryParts, longer = count % kQueryParts;
  blocks.begin += part * share + (part < longer ? part : longer);
  blocks.end = blocks.begin + share + (part < longer ? 1 : 0);
}
