constexpr i32 kBlockKv = ${block_kv};
//% include schedule/key_tile_record

// Sums that end at `most`: of sequences that begin before the one before them has ended there may be more tiles than any number says.
__device__ __forceinline__ u32 sum_up_to(u32 most, u32 x, u32 y) { return x + y < most ? x + y : most; }
__device__ __forceinline__ i32 sum_of_warp_up_to(u32 most, u32 x) {
  x = sum_up_to(most, x, shfl_sync_bfly_b32<16>(x));
  x = sum_up_to(most, x, shfl_sync_bfly_b32<8>(x));
  x = sum_up_to(most, x, shfl_sync_bfly_b32<4>(x));
  x = sum_up_to(most, x, shfl_sync_bfly_b32<2>(x));
  return static_cast<i32>(sum_up_to(most, x, shfl_sync_bfly_b32<1>(x)));
}

// Whether a sequence begins before the one before it, for a whole warp.
__device__ __forceinline__ bool any_falls(const Arguments& args, const i32* begins, i32 all) {
  bool falls = false;
  for (i32 batch = static_cast<i32>(lane_index()); batch < args.batch; batch += kWarpSize)
    falls = falls || Sequence::begin_of(begins, batch, all) > Sequence::begin_of(begins, batch + 1, all);
  return vote_sync_any(falls);
}

// Puts the tiles of keys of one sequence on the list, for a whole warp: behind those of sequences with ${listed_before} queries, whose tiles take ${listed_as}.
__device__ __forceinline__ void list_key_tiles(const Arguments& args, i32 batch) {
  const auto tiles_of = [](const Sequence& sequence) { return sequence.stored_keys / kBlockKv + (sequence.stored_keys % kBlockKv != 0); };
  const i32 queries = Sequence(args, batch).queries;
  const u32 places = static_cast<u32>(blocks_of_keys<kBlockKv>(args));
  u32 all_of_lane = 0, before_of_lane = 0;
  for (i32 other = static_cast<i32>(lane_index()); other < args.batch; other += kWarpSize) {
    const Sequence one(args, other);
    const u32 tiles = static_cast<u32>(tiles_of(one));
    all_of_lane = sum_up_to(places, all_of_lane, tiles);
    if (one.queries ${listed_before_operator} queries || (one.queries == queries && other < batch)) before_of_lane = sum_up_to(places, before_of_lane, tiles);
  }
  const i32 all = sum_of_warp_up_to(places, all_of_lane), before = sum_of_warp_up_to(places, before_of_lane);
  const Sequence sequence(args, batch);  // looked up again: registers are short
  for (i32 tile = static_cast<i32>(lane_index()); tile < tiles_of(sequence); tile += kWarpSize)
    if (before + tile < static_cast<i32>(places)) store_listed_tile(args.key_tile_list, before + tile, sequence, tile);
  if (batch != 0) return;
  // Sequences that overlap share blocks of queries, whose turns they would wait for without an end: such have no tiles.
  const bool overlap = any_falls(args, args.cu_seqlens_q, args.seq_q) || any_falls(args, args.cu_seqlens_kv, args.seq_kv);
  if (lane_index() == 0) st_global_b32(args.key_tile_list + kListedCount, overlap ? 0 : static_cast<u32>(all));
}
