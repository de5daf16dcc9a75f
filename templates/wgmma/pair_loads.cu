// A warp beside the one that copies Q, K and V copies tiles of tensors of pairs, block after block as consumers want them.
constexpr i32 kPairStages = ${pair_stages};

__device__ __forceinline__ void copy_pairs(const Arguments& args, u32 shared, i32 stage, u32 full, const QueryTile& tile, i32 first_key) {
  u32 bytes = 0;
//% for pair_operands
  if (args.${pair_operands.name}_by_map) bytes += ${pair_operands.constant}Panels::kTileBytes;
//% end
  mbarrier_arrive_expect_tx(full, bytes);
//% for pair_operands
  if (args.${pair_operands.name}_by_map)
    copy_${pair_operands.name}(args, ${pair_operands.name}_tile(shared, stage), full, tile.sequence.batch, tile.head, QueryTile::position_of(tile.first_row), first_key);
//% end
}

__device__ __forceinline__ void produce_pairs(const Arguments& args, const Barriers& barriers, u32 shared) {
  PipelineSlot<kPairStages> pairs;
  PipelineSlot<kQStages> q;
  ${consumer_tiles} tiles;
  for (i32 number; (number = tiles.next(args, barriers, q)) >= 0;) {
//% if packed_sequences
    const QueryTile tile(args, number);
    leave_record(barriers, number);
//% else
//% if passed_numbers
    bar_warp_sync();
    if (lane_index() == 0) mbarrier_arrive(barriers.q_empty(q.stage));
    q.advance();
//% end
    const QueryTile tile(args, number);
//% end
//% if visible_blocks
    for (i32 block = tile.blocks.end - 1; block >= tile.blocks.begin; block = tile.visible.before(block)) {
//% else
//% if ascending_keys
    for (i32 block = tile.blocks.begin; block < tile.blocks.end; ++block) {
//% else
    for (i32 block = tile.blocks.end - 1; block >= tile.blocks.begin; --block) {
//% end
//% end
      mbarrier_wait_parity(barriers.pairs_empty(pairs.stage), pairs.parity ^ 1);
      bar_warp_sync();
      if (lane_index() == 0) copy_pairs(args, shared, pairs.stage, barriers.pairs_full(pairs.stage), tile, block * kBlockKv);
      pairs.advance();
    }
  }
}
