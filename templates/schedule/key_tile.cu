struct KeyTile {
  Sequence sequence;
  i32 tile, head, first_key, keys;  // head: with tiles of its own, as TileHeads says

  // index: among the tiles of all heads, all tiles of a head, then those of the next.
  __device__ __forceinline__ KeyTile(const Arguments& args, i32 index) {
    tile = index % args.key_tiles;
    const i32 head_of_all = index / args.key_tiles, heads = TileHeads::count(args);
    sequence = Sequence(args, head_of_all / heads);
    head = head_of_all - sequence.batch * heads;
    first_key = tile * kBlockKv;
    keys = key_count(args, sequence) - first_key < kBlockKv ? key_count(args, sequence) - first_key : kBlockKv;
  }
};
