// A persistent CTA takes several tiles of keys. The warp that copies K takes their numbers and passes them on ahead, through shared memory, so that
// operands of the next tile are copied while this one is worked on. The first is that of the CTA, which costs no wait.
struct KeyTilesOfCta {
  Barriers barriers;
  u32 shared;

  __device__ __forceinline__ KeyTilesOfCta(const Arguments&, const Barriers& barriers, u32 shared) : barriers(barriers), shared(shared) {}
  __device__ __forceinline__ static i32 first(const Arguments& args) { return tile_in_order(args, static_cast<i32>(block_index())); }

  // The index of the tile after that of `slot`, when it has been passed on; -1 behind the last one. It may be asked for more than once.
  __device__ __forceinline__ i32 after(TileSlot slot) const {
    mbarrier_wait_parity(barriers.tile_full(stage(slot)), slot.tiles / kTileNumbers % 2);
    // Every lane reads the same number, as in the forward's tiles: ptxas cannot know that of a load.
    return static_cast<i32>(redux_sync_or_b32(ld_shared_b32(place(slot))));
  }
  // Takes the number of the tile after that of `slot` and passes it on. A whole warp waits: behind a loop of one lane ptxas would count the whole warp
  // as divergent.
  __device__ __forceinline__ void pass(const Arguments& args, TileSlot slot, NextTile& next_tile) const {
    mbarrier_wait_parity(barriers.tile_empty(stage(slot)), slot.tiles / kTileNumbers % 2 ^ 1);
    bar_warp_sync();
    if (lane_index() == 0) {
      const i32 number = next_tile.take(args);
      st_shared_b32(place(slot), static_cast<u32>(${tile_of_number}));
      mbarrier_arrive(barriers.tile_full(stage(slot)));
    }
    bar_warp_sync();
  }
  // Calls work with the index of each tile. slot: of the role whose work it is, which that advances.
  template <class Work>
  __device__ __forceinline__ void for_each(const Arguments& args, TileSlot& slot, const Work& work) const {
    i32 index = first(args);
//% if packed_sequences
    if (index < 0) return;
//% end
#pragma unroll 1
    do {
      work(index);
      index = after(slot);
      bar_warp_sync();
      if (lane_index() == 0) mbarrier_arrive(barriers.tile_empty(stage(slot)));
      slot.advance();
    } while (index >= 0);
  }

 private:
  __device__ __forceinline__ static i32 stage(TileSlot slot) { return static_cast<i32>(slot.tiles % kTileNumbers); }
  __device__ __forceinline__ u32 place(TileSlot slot) const { return shared + kTileNumberOffset + 4 * stage(slot); }
};
