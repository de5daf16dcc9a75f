// Copies a block of queries into a buffer that is free: Q and LSE${pair_words}, or dO and delta. blocks: of a head in workspaces.
__device__ __forceinline__ void copy_block(const Arguments& args, const Barriers& barriers, u32 shared, bool of_do, i32 stage, const Sequence& sequence, i32 query_head,
                                           i32 block, i32 blocks${key_of_pairs}) {
  const u32 full = of_do ? barriers.d_o_full(stage) : barriers.q_full(stage);
//% if pair_tiles
  u32 pair_bytes = 0;
//% for pair_operands
  if (!of_do && args.${pair_operands.name}_by_map) pair_bytes += ${pair_operands.constant}Panels::kTileBytes;
//% end
  mbarrier_arrive_expect_tx(full, kQTileBytes + kRowsBytes + pair_bytes);
//% else
  mbarrier_arrive_expect_tx(full, kQTileBytes + kRowsBytes);
//% end
  const u32 to = shared + (of_do ? kDoOffset : kQOffset) + stage * kQTileBytes;
  const TensorMap& map = of_do ? args.d_o_map : args.q_map;
  const MapPlace place = place_of_queries(args, sequence, block * kBlockQ);
#pragma unroll
  for (i32 panel = 0; panel < kPanels; ++panel)
    load_box(to + panel * kQPanelStride, map, full, panel * kPanelColumns, query_head, place);
  const i64 of_all = static_cast<i64>(workspace_batch(sequence) * args.heads_q + query_head) * blocks + first_block_of_queries<kBlockQ>(sequence) + block;
  cp_async_bulk_load(shared + (of_do ? kDeltaOffset : kLseOffset) + stage * kRowsBytes, args.statistics + (2 * of_all + of_do) * kBlockQ, kRowsBytes, full);
//% if pair_tiles
//% for pair_operands
  if (!of_do && args.${pair_operands.name}_by_map) copy_${pair_operands.name}(args, ${pair_operands.name}_tile(shared, stage), full, sequence.batch, query_head, block * kBlockQ, first_key);
//% end
//% end
}
//% if !loads_ahead

// Copies the blocks of queries that a tile's CTA walks through: one warp those of Q, each with LSE, another those of dO, each with delta. Both run
// the same code: a thread's registers are those of all roles of its warpgroup.
struct QueryLoads {
  bool of_do;  // what this warp copies
  i32 stage = 0;
  u32 parity = 0;
  i32 head, block;  // the next one of the tile; head: of those walked

  __device__ __forceinline__ explicit QueryLoads(bool of_do) : of_do(of_do) {}
  __device__ __forceinline__ void begin(const QueryWalk& walk) {
    head = 0;
    block = walk.blocks.begin;
  }

  __device__ __forceinline__ i32 stages() const { return of_do ? kDoStages : kStages; }

//% if dq_by_softmax
  __device__ __forceinline__ bool any(const Arguments& args) const { return head < TileHeads::walked(args); }
//% end
//% if polled_loads
  // Fills the buffer of the next block, if there is one and its buffer is free. For one lane, which alone knows the next block.
  __device__ __forceinline__ void poll(const Arguments& args, const Barriers& barriers, const KeyTile& tile, const QueryWalk& walk, u32 shared) {
    if (head == TileHeads::walked(args) || !mbarrier_test_wait_parity(empty(barriers), parity ^ 1)) return;
    fill(args, barriers, tile, walk, shared);
    advance(walk);
  }
//% else
  // Waits for the buffer of the next block, if there is one, and fills it.
  __device__ __forceinline__ void next(const Arguments& args, const Barriers& barriers, const KeyTile& tile, const QueryWalk& walk, u32 shared) {
    if (head == TileHeads::walked(args)) return;
    if (lane_index() == 0) {
      mbarrier_wait_parity(empty(barriers), parity ^ 1);
      fill(args, barriers, tile, walk, shared);
    }
    advance(walk);
  }
//% end

 private:
  __device__ __forceinline__ u32 empty(const Barriers& barriers) const { return of_do ? barriers.d_o_empty(stage) : barriers.q_empty(stage); }
  __device__ __forceinline__ void fill(const Arguments& args, const Barriers& barriers, const KeyTile& tile, const QueryWalk& walk, u32 shared) const {
    copy_block(args, barriers, shared, of_do, stage, tile.sequence, TileHeads::of_queries(args, tile.head, head), block, walk.blocks.all${key_of_tile});
  }
  __device__ __forceinline__ void advance(const QueryWalk& walk) {
    if (++stage == stages()) {
      stage = 0;
      parity ^= 1;
    }
//% if visible_blocks
    block = walk.visible.from(block + 1, walk.blocks.end);
    if (block == walk.blocks.end) {
//% else
    if (++block == walk.blocks.end) {
//% end
      block = walk.blocks.begin;
      ++head;
    }
  }
};
//% end
