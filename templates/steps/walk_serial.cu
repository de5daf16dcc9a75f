// A block of keys at a time: S, its softmax, P V. Only other warpgroups keep the tensor core busy meanwhile.
struct Walk {
  const Arguments& args;
  Consumer consumer;
  Softmax softmax;
  ScoreFragments s;
  ProbabilityFragments p;
  OutputFragments o;

  // The tile's first block, walked to; each of the others; what is left after the last one.
  template <bool kMasked>
  __device__ __forceinline__ void begin(i32 tile_number, i32 row, i32 block) {
    walk_block<true, kMasked>(tile_number, row, block);
  }
  template <bool kMasked>
  __device__ __forceinline__ void step(i32 tile_number, i32 row, i32 block) {
    walk_block<false, kMasked>(tile_number, row, block);
  }
  __device__ __forceinline__ void end() {}

 private:
  template <bool kFirst, bool kMasked>
  __device__ __forceinline__ void walk_block(i32 tile_number, i32 row, i32 block) {
    consumer.wait_k();
    consumer.wait_turn();
    consumer.issue_qk(s);
    wgmma_wait_group<0>();
    wgmma_landed(s);
    consumer.pass_turn();
    consumer.release_k();
    if (kMasked) mask_scores(s, args, row, block);
    if (kFirst)
      softmax.first<kMasked>(s);
    else
      softmax.update<kMasked>(s, {args, tile_number, row, block});
    pack_scores(s, p);
    if (!kFirst) softmax.rescale(o);
    consumer.wait_v();
    consumer.issue_pv(o, p);
    wgmma_wait_group<0>();
    wgmma_landed(o);
    consumer.release_v();
    if (!kFirst && block > 0) softmax.follow();
  }
};
