// Persistent CTAs take every grid_size()-th tile; in every second round backwards, which evens out tiles that grow shorter.
struct ProducerTiles {
  i32 round = 0;

  __device__ __forceinline__ i32 next(const Arguments& args) {
    const i32 ctas = static_cast<i32>(grid_size()), cta = static_cast<i32>(block_index());
    const i32 tile = round * ctas + (round % 2 ? ctas - 1 - cta : cta);
    ++round;
    return tile < args.tiles ? tile : -1;
  }
  __device__ __forceinline__ void publish(i32, const Barriers&, PipelineSlot<kQStages>) {}
};

struct ConsumerTiles : ProducerTiles {
  __device__ __forceinline__ i32 next(const Arguments& args, const Barriers&, PipelineSlot<kQStages>) { return ProducerTiles::next(args); }
};
