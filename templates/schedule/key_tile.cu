struct KeyTile {
  Sequence sequence;
  i32 tile, head, first_key, keys;  // head: with tiles of its own, as TileHeads says
//% if query_parts
  i32 part;  // of the queries
//% end

//% if query_parts
  // index: among the tiles of all parts of all heads, all tiles of a part, then those of the next.
//% else
  // index: among the tiles of all heads, all tiles of a head, then those of the next.
//% end
  __device__ __forceinline__ KeyTile(const Arguments& args, i32 index) {
    tile = index % args.key_tiles;
//% if query_parts
    const i32 part_of_all = index / args.key_tiles, head_of_all = part_of_all / kQueryParts, heads = TileHeads::count(args);
    part = part_of_all - head_of_all * kQueryParts;
//% else
    const i32 head_of_all = index / args.key_tiles, heads = TileHeads::count(args);
//% end
//% if packed_sequences
    const ListedTile listed(args.key_tile_list, tile);
    tile = listed.tile;
    sequence = listed.sequence;
    head = head_of_all;
//% else
    sequence = Sequence(args, head_of_all / heads);
    head = head_of_all - sequence.batch * heads;
//% end
    first_key = tile * kBlockKv;
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
