constexpr i32 kBlockKv = ${block_kv};
//% include schedule/key_tile_record

__device__ __forceinline__ i32 sum_of_warp(i32 x) {
  u32 sum = static_cast<u32>(x);
  sum += shfl_sync_bfly_b32<16>(sum);
  sum += shfl_sync_bfly_b32<8>(sum);
  sum += shfl_sync_bfly_b32<4>(sum);
  sum += shfl_sync_bfly_b32<2>(sum);
  return static_cast<i32>(sum + shfl_sync_bfly_b32<1>(sum));
}

// Puts the tiles of keys of one sequence on the list, for a whole warp: behind those of sequences with ${listed_before} queries, whose tiles take ${listed_as}.
__device__ __forceinline__ void list_key_tiles(const Arguments& args, i32 batch) {
  const auto tiles_of = [](const Sequence& sequence) { return sequence.stored_keys / kBlockKv + (sequence.stored_keys % kBlockKv != 0); };
  const i32 queries = Sequence(args, batch).queries;
  i32 all = 0, before = 0;
  for (i32 other = static_cast<i32>(lane_index()); other < args.batch; other += kWarpSize) {
    const Sequence one(args, other);
    all += tiles_of(one);
    if (one.queries ${listed_before_operator} queries || (one.queries == queries && other < batch)) before += tiles_of(one);
  }
  all = sum_of_warp(all);
  before = sum_of_warp(before);
  // Of sequences that begin before the one before them has ended there may be more than the list has places for.
  const i32 places = blocks_of_keys<kBlockKv>(args);
  const Sequence sequence(args, batch);  // looked up again: registers are short
  for (i32 tile = static_cast<i32>(lane_index()); tile < tiles_of(sequence); tile += kWarpSize)
    if (before + tile < places) store_listed_tile(args.key_tile_list, before + tile, sequence, tile);
  if (batch == 0 && lane_index() == 0) st_global_b32(args.key_tile_list + kListedCount, static_cast<u32>(all < places ? all : places));
}
