// The place of a buffer that is counted through all rounds.
template <i32 kCount>
__device__ __forceinline__ PipelineSlot<kCount> slot_of(u32 buffer) {
  return {static_cast<i32>(buffer % kCount), buffer / kCount % 2};
}

constexpr i32 kMostStages = kStages > kDoStages ? kStages : kDoStages;  // blocks that are copied ahead

// The loads of a persistent CTA, for two warps: one copies K, Q and LSE, the other one V (of the first tile), dO and delta. When all blocks of a tile have
// been copied they go on with the next one's. Of a tile only what a block's copy takes is kept: registers are scarce here, and what is spilled would be
// read behind the adds.
struct TileLoads {
  bool of_do;  // what this warp copies
  bool ahead;  // whether the tile that is copied is the one after that which is worked on
  NextTile next_tile;
  Sequence sequence;  // of the tile
  i32 head;           // of the tile
  i32 walked, block;  // of the next copy: the query head, of those walked, and its block
  i32 begin;          // of the blocks
//% if ends_early
  i32 end;
//% end
//% if pair_tiles
  i32 first_key;      // of the tile
//% end
  i32 place = 0;      // of the next copy in its ring, counted through two rounds
//% if !polled_loads
  i32 filled = 0;     // blocks that were copied and have not been worked on
//% end

  __device__ __forceinline__ explicit TileLoads(bool of_do) : of_do(of_do) {}

  // The first tile.
  __device__ __forceinline__ void begin_cta(const Arguments& args, const Barriers& barriers, u32 shared) {
//% if packed_sequences
    const i32 first = KeyTilesOfCta::first(args);
    if (first < 0) return;
    const KeyTile tile(args, first);
//% else
    const KeyTile tile(args, KeyTilesOfCta::first(args));
//% end
    if (lane_index() == 0) {
      const i32 head_kv = TileHeads::of_keys(args, tile.head);
      const MapPlace place = place_of_keys(args, tile.sequence, tile.tile);
      load_tile<kKvPanelStride>(shared + (of_do ? kVOffset : kKOffset), of_do ? args.v_map : args.k_map, of_do ? barriers.v_full() : barriers.k_full(), head_kv, place);
    }
    griddepcontrol_wait();  // the statistics are another kernel's
    begin_blocks(args, tile);
//% if !polled_loads
#pragma unroll 1
    while (filled < stages() && any(args)) fill_one(args, barriers, shared);
//% end
  }
  // A tile is worked on from now on.
  __device__ __forceinline__ void begin_tile() { ahead = false; }
  // Takes the number of the next tile and passes it on: the warp that copies K. The later that is, the more evenly tiles of different lengths are shared out.
  __device__ __forceinline__ void pass_number(const Arguments& args, const KeyTilesOfCta& tiles, TileSlot slot) { tiles.pass(args, slot, next_tile); }
//% if polled_loads
  // Fills the buffer of the next block, if there is one and its buffer is free. For one lane, which alone knows the next block.
  __device__ __forceinline__ void poll(const Arguments& args, const Barriers& barriers, u32 shared) {
    if (!any(args) || !mbarrier_test_wait_parity(empty(barriers), parity() ^ 1)) return;
    copy(args, barriers, shared);
    advance(args);
  }
//% else
  // Fills a buffer of queries, if one is free, with a block of this tile. Not in a loop, here and below: ptxas would count the warp as divergent behind
  // it, and each product would fetch its descriptors from the registers of the lanes.
  __device__ __forceinline__ void fill(const Arguments& args, const Barriers& barriers, u32 shared) {
    if (filled < stages() && any(args)) fill_one(args, barriers, shared);
  }
  // The same, with a block of the next tile where this one has no more.
  __device__ __forceinline__ void fill_ahead(const Arguments& args, const Barriers& barriers, const KeyTilesOfCta& tiles, TileSlot slot, u32 shared) {
    if (filled == stages()) return;
    if (!any(args) && !ahead) go_ahead(args, tiles, slot);
    if (any(args)) fill_one(args, barriers, shared);
  }
//% end
  // When all blocks of the tile have been copied.
  __device__ __forceinline__ void go_ahead(const Arguments& args, const KeyTilesOfCta& tiles, TileSlot slot) {
    const i32 index = tiles.after(slot);
    ahead = true;
    if (index >= 0) begin_blocks(args, KeyTile(args, index));
  }
  // The next tile's K, if there is one, when all products with this one have been seen to land. (A softmax warpgroup copies V.)
  __device__ __forceinline__ void load_next_k(const Arguments& args, const Barriers& barriers, const KeyTilesOfCta& tiles, TileSlot slot, u32 shared) const {
    const i32 index = tiles.after(slot);
    if (index < 0) return;
    mbarrier_wait_parity(barriers.k_empty(), slot.parity());
    bar_warp_sync();
    const KeyTile tile(args, index);
    if (lane_index() == 0)
      load_tile<kKvPanelStride>(shared + kKOffset, args.k_map, barriers.k_full(), TileHeads::of_keys(args, tile.head), place_of_keys(args, tile.sequence, tile.tile));
  }

 private:
//% if !polled_loads
  __device__ __forceinline__ void fill_one(const Arguments& args, const Barriers& barriers, u32 shared) {
    mbarrier_wait_parity(empty(barriers), parity() ^ 1);
    bar_warp_sync();
    if (lane_index() == 0) copy(args, barriers, shared);
    advance(args);
  }
//% end
  __device__ __forceinline__ i32 stages() const { return of_do ? kDoStages : kStages; }
  __device__ __forceinline__ i32 stage() const { return place < stages() ? place : place - stages(); }
  __device__ __forceinline__ u32 parity() const { return place < stages() ? 0 : 1; }
  __device__ __forceinline__ u32 empty(const Barriers& barriers) const { return of_do ? barriers.d_o_empty(stage()) : barriers.q_empty(stage()); }
  __device__ __forceinline__ bool any(const Arguments& args) const { return walked < TileHeads::walked(args); }

  __device__ __forceinline__ void begin_blocks(const Arguments& args, const KeyTile& tile) {
    const QueryWalk walk(args, tile);
    sequence = tile.sequence;
    head = tile.head;
//% if pair_tiles
    first_key = tile.first_key;
//% end
    walked = walk.any() ? 0 : TileHeads::walked(args);
    block = begin = walk.blocks.begin;
//% if ends_early
    end = walk.blocks.end;
//% end
  }
  __device__ __forceinline__ void advance(const Arguments& args) {
    if (++place == 2 * stages()) place = 0;
//% if !polled_loads
    ++filled;
//% end
//% if ends_early
    if (++block < end) return;
//% else
    if (++block < blocks_of_queries<kBlockQ>(args)) return;
//% end
    block = begin;
    ++walked;
  }
  __device__ __forceinline__ void copy(const Arguments& args, const Barriers& barriers, u32 shared) const {
    copy_block(args, barriers, shared, of_do, stage(), sequence, TileHeads::of_queries(args, head, walked), block, blocks_of_queries<kBlockQ>(args)${key_of_loads});
  }
};
