// Numbers are those of tiles of packed sequences: the producer passes over numbers of no tile, and leaves a record of each tile to the consumers. All name a tile
// by where its record is. The producer writes one when the queries of the tile before have been asked for: consumers have left those that had been in that
// buffer, and may still store what came of them. So there are two records more than tiles of Q.
constexpr i32 kTileRecords = kQStages + 2;
__device__ __forceinline__ i32 record_after(i32 record) { return record == kTileRecords - 1 ? 0 : record + 1; }

struct RecordingTiles {
  ProducerTiles numbers;
  i32 record = 0;  // the next one

  __device__ __forceinline__ i32 first(const Arguments& args, const Barriers& barriers) { return find(args, barriers, numbers.first(args, barriers)); }
  __device__ __forceinline__ i32 next(const Arguments& args, const Barriers& barriers) { return find(args, barriers, numbers.next(args, barriers)); }
  // To be called before the arrival on q_full that the consumers wait for; behind the last tile it arrives itself.
  __device__ __forceinline__ void publish(i32 tile, const Barriers& barriers, PipelineSlot<kQStages> q) const {
    if (tile < 0) mbarrier_arrive(barriers.q_full(q.stage));
  }

 private:
  // Where the record of the number's tile is, or of the first tile behind it; negative if there is none.
  __device__ __forceinline__ i32 find(const Arguments& args, const Barriers& barriers, i32 number) {
    const i32 at = barriers.record(record);
    record = record_after(record);
    for (; number >= 0; number = numbers.next(args, barriers)) {
      const PackedTile placed(args, tile_index(args, number));
      if (placed.index.tile * (${tile_positions}) >= placed.sequence.stored_queries) continue;
      store_tile_record(static_cast<u32>(at), placed);
      return at;
    }
    st_shared_b32(static_cast<u32>(at), static_cast<u32>(-1));
    return -1;
  }
};

struct RecordedTiles {
  i32 record = 0;  // the next one

  // Every lane reads the same word, which ptxas cannot know of a load.
  __device__ __forceinline__ i32 next(const Arguments&, const Barriers& barriers, PipelineSlot<kQStages> q) {
    mbarrier_wait_parity(barriers.q_full(q.stage), q.parity);
    const i32 at = barriers.record(record);
    record = record_after(record);
    return static_cast<i32>(redux_sync_or_b32(ld_shared_b32(static_cast<u32>(at)))) < 0 ? -1 : at;
  }
};
