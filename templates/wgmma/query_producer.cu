// Where the warpgroup that loads stands in the rings, from tile to tile.
struct QueryProducer {
  i32 warp;
  QueryLoads queries;
  TileSlot slot;
//% if persistent
  NextTile next_tile;
//% end

  __device__ __forceinline__ explicit QueryProducer(i32 warp) : warp(warp), queries(warp == 2) {}
};

//% if persistent
// All loads of a tile: one warp's of K, Q and LSE, another one's of V, dO and delta. Each buffer is filled anew when every softmax warpgroup has left it;
// the warps run ahead of those, into the next tile.
//% else
// All loads of a tile: one warp's of K, Q and LSE, another one's of V, dO and delta. Each buffer is filled anew when every softmax warpgroup has left it.
//% end
__device__ __forceinline__ void load_operands(const Arguments& args, const Barriers& barriers, u32 shared, i32 index, QueryProducer& producer${and_tiles}) {
  const KeyTile tile(args, index);
  const QueryWalk walk(args, tile);
//% if !persistent
  if (!walk.any()) {
    griddepcontrol_wait();  // a launch ends no earlier than the one before it
    return;
  }
//% end
  QueryLoads& queries = producer.queries;
//% if persistent
  const TileSlot slot = producer.slot;
//% end
  if (producer.warp == 1 || producer.warp == 2) {
    const i32 head_kv = TileHeads::of_keys(args, tile.head);
    if (lane_index() == 0) {
//% if persistent
      mbarrier_wait_parity(queries.of_do ? barriers.v_empty() : barriers.k_empty(), slot.parity() ^ 1);
//% end
      load_tile<kKvPanelStride>(shared + (queries.of_do ? kVOffset : kKOffset), queries.of_do ? args.v_map : args.k_map, queries.of_do ? barriers.v_full() : barriers.k_full(),
                                head_kv, place_of_keys(args, tile.sequence, tile.tile));
    }
    griddepcontrol_wait();  // the statistics are another kernel's
    queries.begin(walk);
//% if persistent
    if (walk.any()) {
#pragma unroll 1
      while (queries.any(args)) queries.next(args, barriers, tile, walk, shared);
    }
    if (!queries.of_do) tiles.pass(args, slot, producer.next_tile);
//% else
#pragma unroll 1
    while (queries.any(args)) queries.next(args, barriers, tile, walk, shared);
//% end
  }
}
