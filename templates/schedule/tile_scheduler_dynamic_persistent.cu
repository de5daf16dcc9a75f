// Persistent CTAs, or clusters of them, begin with the tile of their number, which costs no wait, and take the next one when they need it; the
// producer tells the consumers with the tile's queries.
struct ProducerTiles {
//% if clustered
  u32 parity = 0;
//% end

  __device__ __forceinline__ i32 first(const Arguments&, const Barriers&) { return static_cast<i32>(block_index() / kCluster); }
//% if clustered
  // The first CTA of a cluster takes a tile for the whole cluster and passes it on when the one before has been read. The first CTA's barrier says
  // that it has been read, the barrier of each other CTA that the tile has come.
  __device__ __forceinline__ i32 next(const Arguments& args, const Barriers& barriers) {
    i32 tile;
    if (cluster_cta_rank() == 0) {
      tile = take(args);
      mbarrier_wait_parity(barriers.passing(), parity ^ 1);
      st_async_cluster_b32(barriers.passed_tile(), static_cast<u32>(tile), barriers.passing(), 1);
    } else {
      mbarrier_arrive_expect_tx(barriers.passing(), 4);
      mbarrier_wait_parity(barriers.passing(), parity);
      tile = static_cast<i32>(ld_shared_b32(barriers.passed_tile()));
      mbarrier_arrive_cluster(barriers.passing(), 0);
    }
    parity ^= 1;
    return tile;
  }
//% else
  __device__ __forceinline__ i32 next(const Arguments& args, const Barriers&) { return take(args); }
//% end
  // To be called before the arrival on q_full that the consumers wait for.
  __device__ __forceinline__ void publish(i32 tile, const Barriers& barriers, PipelineSlot<kQStages> q) {
    st_shared_b32(barriers.tile_of(q.stage), static_cast<u32>(tile));
    if (tile < 0) mbarrier_arrive(barriers.q_full(q.stage));
  }

 private:
  __device__ __forceinline__ static i32 take(const Arguments& args) {
    const i32 tile = static_cast<i32>(grid_size() / kCluster + atom_relaxed_gpu_global_add_u32(args.tile_counter, 1));
    return tile < args.tiles ? tile : -1;
  }
};

struct ConsumerTiles {
  // Every lane reads the same number, which ptxas cannot know of a load: the loops that hang on it would count as divergent, and each product
  // would fetch its descriptors from the registers of the lanes.
  __device__ __forceinline__ i32 next(const Arguments&, const Barriers& barriers, PipelineSlot<kQStages> q) {
    mbarrier_wait_parity(barriers.q_full(q.stage), q.parity);
    return static_cast<i32>(redux_sync_or_b32(ld_shared_b32(barriers.tile_of(q.stage))));
  }
};
