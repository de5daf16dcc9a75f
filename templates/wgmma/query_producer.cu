// Where the warpgroup that loads stands in the rings, from tile to tile.
struct QueryProducer {
  i32 warp;
  QueryLoads queries;
  PipelineSlot<1> kv;  // K and V of the tile

  __device__ __forceinline__ explicit QueryProducer(i32 warp) : warp(warp), queries(warp == 2) {}
};

// All loads of a tile: one warp's of K, Q and LSE, another one's of V, dO and delta. Each buffer is filled anew when every softmax warpgroup has left it.
__device__ __forceinline__ void load_operands(const Arguments& args, const Barriers& barriers, u32 shared, i32 index, QueryProducer& producer) {
  const KeyTile tile(args, index);
  const QueryWalk walk(args, tile);
  if (!walk.any()) {
    griddepcontrol_wait();  // a launch ends no earlier than the one before it
    return;
  }
  QueryLoads& queries = producer.queries;
  if (producer.warp == 1 || producer.warp == 2) {
    const i32 head_kv = TileHeads::of_keys(args, tile.head);
    if (lane_index() == 0) {
//% if persistent
      mbarrier_wait_parity(queries.of_do ? barriers.v_empty() : barriers.k_empty(), producer.kv.parity ^ 1);
//% end
      const u32 to = shared + (queries.of_do ? kVOffset : kKOffset), full = queries.of_do ? barriers.v_full() : barriers.k_full();
      load_tile<kKvPanelStride>(to, queries.of_do ? args.v_map : args.k_map, full, head_kv, place_of_keys(tile.sequence, tile.tile));
    }
    griddepcontrol_wait();  // the statistics are another kernel's
    queries.begin(walk);
#pragma unroll 1
    while (queries.any(args)) queries.next(args, barriers, tile, walk, shared);
  }
  producer.kv.advance();
}
