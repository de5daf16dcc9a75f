struct KeyTile {
  Sequence sequence;
  i32 tile, head, first_key, keys;  // head: with tiles of its own, as TileHeads says; keys: that exist, none or fewer in the last tile
  i32 first_of_cluster, keys_of_cluster;

  // index: among the pairs of tiles of all heads, all pairs of a head, then those of the next.
  __device__ __forceinline__ KeyTile(const Arguments& args, i32 index) {
    const i32 pair = index % args.key_tiles, head_of_all = index / args.key_tiles, heads = TileHeads::count(args);
    sequence = Sequence(args, head_of_all / heads);
    head = head_of_all - sequence.batch * heads;
    tile = pair * kCluster + static_cast<i32>(cluster_cta_rank());
    first_key = tile * kBlockKv;
    first_of_cluster = pair * kCluster * kBlockKv;
    const i32 left = key_count(args, sequence) - first_of_cluster;
    keys_of_cluster = left < kCluster * kBlockKv ? left : kCluster * kBlockKv;
    keys = key_count(args, sequence) - first_key < kBlockKv ? key_count(args, sequence) - first_key : kBlockKv;
  }
//% if short_sequences
  // Rows of dK and dV that belong to the tile, also behind the last key of the sequence.
  __device__ __forceinline__ i32 rows(const Arguments& args) const { return stored_keys(args, sequence) - first_key < kBlockKv ? stored_keys(args, sequence) - first_key : kBlockKv; }
//% else
  // Rows of dK and dV that belong to the tile.
  __device__ __forceinline__ i32 rows(const Arguments&) const { return keys; }
//% end
};
