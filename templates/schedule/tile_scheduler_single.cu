// Each CTA takes one tile; the CTAs of a cluster take neighbouring ones.
struct ProducerTiles {
  bool taken = false;

  __device__ __forceinline__ i32 next(const Arguments&, const Barriers&) {
    const i32 tile = taken ? -1 : static_cast<i32>(block_index() / kCluster);
    taken = true;
    return tile;
  }
  __device__ __forceinline__ i32 first(const Arguments& args, const Barriers& barriers) { return next(args, barriers); }
  __device__ __forceinline__ void publish(i32, const Barriers&, PipelineSlot<kQStages>) {}
};

struct ConsumerTiles : ProducerTiles {
  __device__ __forceinline__ i32 next(const Arguments& args, const Barriers& barriers, PipelineSlot<kQStages>) {
    return ProducerTiles::next(args, barriers);
  }
};
