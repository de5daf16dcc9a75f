// One tile for each CTA.
struct ProducerTiles {
  bool taken = false;

  __device__ __forceinline__ i32 next(const Arguments&) {
    const i32 tile = taken ? -1 : static_cast<i32>(block_index());
    taken = true;
    return tile;
  }
  __device__ __forceinline__ void publish(i32, const Barriers&, PipelineSlot<kQStages>) {}
};

struct ConsumerTiles : ProducerTiles {
  __device__ __forceinline__ i32 next(const Arguments& args, const Barriers&, PipelineSlot<kQStages>) { return ProducerTiles::next(args); }
};
