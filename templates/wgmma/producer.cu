// Copies Q, K and V of the CTA's tiles, in the order in which the consumers want them: K before Q, whose buffer is free later.
__device__ __forceinline__ void produce(const Arguments& args, const Barriers& barriers, u32 shared) {
  PipelineSlot<kQStages> q;
  PipelineSlot<kStages> k;
  PipelineSlot<kVStages> v;
  ${producer_tiles} tiles;
  KvLoads loads{barriers};
  const auto load_k = [&](const QueryTile& tile, i32 block) {
    mbarrier_wait_parity(barriers.k_empty(k.stage), k.parity ^ 1);
    loads.load(shared + kKOffset + k.stage * kKvTileBytes, args.k_map, barriers.k_full(k.stage), tile.head_kv, place_of_keys(args, tile.sequence, block));
    k.advance();
  };
  const auto load_v = [&](const QueryTile& tile, i32 block) {
    mbarrier_wait_parity(barriers.v_empty(v.stage), v.parity ^ 1);
    loads.load(shared + kVOffset + v.stage * kKvTileBytes, args.v_map, barriers.v_full(v.stage), tile.head_kv, place_of_keys(args, tile.sequence, block));
    v.advance();
  };
  for (i32 number = tiles.first(args, barriers); number >= 0; number = tiles.next(args, barriers)) {
    const QueryTile tile(args, number);
//% if ascending_keys
    i32 block = tile.blocks.begin;
    if (block < tile.blocks.end) load_k(tile, block);
//% else
    i32 block = tile.blocks.end - 1;
    if (block >= tile.blocks.begin) load_k(tile, block);
//% end
    mbarrier_wait_parity(barriers.q_empty(q.stage), q.parity ^ 1);
    tiles.publish(number, barriers, q);
    load_tile<kQPanelStride>(shared + kQOffset + q.stage * kQTileBytes, args.q_map, barriers.q_full(q.stage), tile.head,
                              place_of_queries(args, tile.sequence, QueryTile::position_of(tile.first_row)));
    q.advance();
//% if packed_sequences
    i32 left = tile.blocks.end - tile.blocks.begin;
    if (left <= tiles.kAskedAt) tiles.ask(barriers);
//% end
//% if visible_blocks
    while (block >= tile.blocks.begin) {
      const i32 next = tile.visible.before(block);
//% if packed_sequences
      if (block - tile.blocks.begin >= tiles.kAskedAt && next - tile.blocks.begin < tiles.kAskedAt) tiles.ask(barriers);
//% end
      if (next >= tile.blocks.begin) load_k(tile, next);
      load_v(tile, block);
      block = next;
    }
//% else
//% if ascending_keys
    for (; block < tile.blocks.end - 1; ++block) {
//% if packed_sequences
      if (--left == tiles.kAskedAt) tiles.ask(barriers);
//% end
      load_k(tile, block + 1);
      load_v(tile, block);
    }
    if (block < tile.blocks.end) load_v(tile, block);
//% else
    for (; block > tile.blocks.begin; --block) {
//% if packed_sequences
      if (--left == tiles.kAskedAt) tiles.ask(barriers);
//% end
      load_k(tile, block - 1);
      load_v(tile, block);
    }
    if (block == tile.blocks.begin) load_v(tile, block);
//% end
//% end
  }
  mbarrier_wait_parity(barriers.q_empty(q.stage), q.parity ^ 1);
  tiles.publish(-1, barriers, q);
}
