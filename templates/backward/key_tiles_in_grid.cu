// A CTA's number among all tiles of keys, tile after tile of a head.
struct KeyTile {
  i32 tile, batch_head;  // batch_head: of the keys
  __device__ __forceinline__ KeyTile(const Arguments& args, u32 /*shared*/)
      : tile(static_cast<i32>(block_index() % static_cast<u32>(args.key_tiles))),
        batch_head(static_cast<i32>(block_index() / static_cast<u32>(args.key_tiles))) {}
};
