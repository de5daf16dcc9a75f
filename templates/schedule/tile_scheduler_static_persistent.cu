// Persistent CTAs, or clusters of them, take tiles as far apart as there are of them; in every second round backwards, which evens out tiles
// that grow shorter.
struct ProducerTiles {
  i32 round = 0;

  __device__ __forceinline__ i32 next(const Arguments& args, const Barriers&) {
    const i32 takers = static_cast<i32>(grid_size() / kCluster), taker = static_cast<i32>(block_index() / kCluster);
    const i32 tile = round * takers + (round % 2 ? takers - 1 - taker : taker);
    ++round;
    return tile < args.tiles ? tile : -1;
  }
  __device__ __forceinline__ i32 first(const Arguments& args, const Barriers& barriers) { return next(args, barriers); }
  __device__ __forceinline__ void publish(i32, const Barriers&, PipelineSlot<kQStages>) {}
};

struct ConsumerTiles : ProducerTiles {
  __device__ __forceinline__ i32 next(const Arguments& args, const Barriers& barriers, PipelineSlot<kQStages>) {
    return ProducerTiles::next(args, barriers);
  }
};
