// Persistent CTAs take the next tile when they need one; the producer tells the consumers with the tile's queries.
struct ProducerTiles {
  __device__ __forceinline__ i32 next(const Arguments& args) {
    const i32 tile = static_cast<i32>(atom_global_add_u32(args.tile_counter, 1));
    return tile < args.tiles ? tile : -1;
  }
  // Before the arrival on q_full that the consumers wait for.
  __device__ __forceinline__ void publish(i32 tile, const Barriers& barriers, PipelineSlot<kQStages> q) {
    st_shared_b32(barriers.tile_of(q.stage), static_cast<u32>(tile));
    if (tile < 0) mbarrier_arrive(barriers.q_full(q.stage));
  }
};

struct ConsumerTiles {
  __device__ __forceinline__ i32 next(const Arguments&, const Barriers& barriers, PipelineSlot<kQStages> q) {
    mbarrier_wait_parity(barriers.q_full(q.stage), q.parity);
    return static_cast<i32>(ld_shared_b32(barriers.tile_of(q.stage)));
  }
};
