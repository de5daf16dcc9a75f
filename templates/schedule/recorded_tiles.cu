// Numbers are those of tiles of packed sequences. A warp that does nothing else finds out what they are while others work: it passes over numbers of no tile,
// and leaves a record of each tile, behind the last one a word that says so. Others name a tile by where its record is. A consumer warp leaves a record when it
// has stored the tile's results, for it reads there once more where they lie. The next tile is looked for when the producer asks, with a few blocks left to
// copy: a CTA that took its tiles earlier would keep them from others, which have nothing to do in the end.
constexpr u32 kTileRecords = ${tile_record_count};

// A place in the ring of records.
struct RecordSlot {
  u32 passed = 0;

  __device__ __forceinline__ i32 stage() const { return static_cast<i32>(passed % kTileRecords); }
  __device__ __forceinline__ u32 parity() const { return passed / kTileRecords % 2; }
};

// Takes the next number, for all lanes of a warp.
__device__ __forceinline__ i32 take_number(const Arguments& args, const Barriers& barriers, ProducerTiles& numbers) {
  const i32 number = lane_index() == 0 ? numbers.next(args, barriers) : 0;
  return static_cast<i32>(redux_sync_or_b32(static_cast<u32>(number)));
}

// For one whole warp.
__device__ __forceinline__ void find_tiles(const Arguments& args, const Barriers& barriers) {
  ProducerTiles numbers;
  RecordSlot slot;
  for (i32 number = numbers.first(args, barriers); number >= 0; number = take_number(args, barriers, numbers)) {
//% if split
    // Each part of the keys counts as a tile, in the record too.
    const KeyPart part(args, number);
    PackedTile placed(args, tile_index(args, part.tile));
//% else
    const PackedTile placed(args, tile_index(args, number));
//% end
    if (placed.index.tile * (${tile_positions}) >= placed.sequence.stored_queries) continue;
//% if split
    placed.index.tile = placed.index.tile * args.key_parts + part.part;
//% end
    if (lane_index() == 0) {
      mbarrier_wait_parity(barriers.record_empty(slot.stage()), slot.parity() ^ 1);
      store_tile_record(static_cast<u32>(barriers.record(slot.stage())), placed);
      mbarrier_arrive(barriers.record_full(slot.stage()));
      mbarrier_wait_parity(barriers.asked(), slot.passed % 2);
    }
    ++slot.passed;
  }
  if (lane_index() == 0) {
    mbarrier_wait_parity(barriers.record_empty(slot.stage()), slot.parity() ^ 1);
    st_shared_b32(static_cast<u32>(barriers.record(slot.stage())), static_cast<u32>(-1));
    mbarrier_arrive(barriers.record_full(slot.stage()));
  }
}

// For the thread that copies.
struct FoundTiles {
  RecordSlot slot;

  __device__ __forceinline__ i32 first(const Arguments& args, const Barriers& barriers) { return next(args, barriers); }
  // Where the next tile's record is; negative if there is none.
  __device__ __forceinline__ i32 next(const Arguments&, const Barriers& barriers) {
    mbarrier_wait_parity(barriers.record_full(slot.stage()), slot.parity());
    const i32 at = barriers.record(slot.stage());
    ++slot.passed;
    return static_cast<i32>(ld_shared_b32(static_cast<u32>(at))) < 0 ? -1 : at;
  }
  __device__ __forceinline__ void publish(i32, const Barriers&, PipelineSlot<kQStages>) const {}
  // To be called once a tile, when so many blocks are left to copy, or fewer where it has no more.
  static constexpr i32 kAskedAt = 2;
  __device__ __forceinline__ void ask(const Barriers& barriers) const { mbarrier_arrive(barriers.asked()); }
};

// For consumer warps.
struct RecordedTiles {
  RecordSlot slot;

  // Every lane reads the same word, which ptxas cannot know of a load.
  __device__ __forceinline__ i32 next(const Arguments&, const Barriers& barriers, PipelineSlot<kQStages>) {
    mbarrier_wait_parity(barriers.record_full(slot.stage()), slot.parity());
    const i32 at = barriers.record(slot.stage());
    ++slot.passed;
    return static_cast<i32>(redux_sync_or_b32(ld_shared_b32(static_cast<u32>(at)))) < 0 ? -1 : at;
  }
};
__device__ __forceinline__ void leave_record(const Barriers& barriers, i32 record) {
  bar_warp_sync();
  if (lane_index() == 0) mbarrier_arrive(barriers.record_empty(static_cast<i32>(static_cast<u32>(record - barriers.record(0)) / kTileRecordBytes)));
}
