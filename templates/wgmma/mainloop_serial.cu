// A block of keys at a time: S, its softmax, P V. Only other warpgroups keep the tensor core busy meanwhile.
struct Mainloop {
  const Arguments& args;
  Consumer consumer;
  Softmax softmax;
  ScoreFragments s;
  OutputFragments o;

  // Leaves the fragments unset: the first product overwrites S, and setting it would touch registers of that product.
  __device__ __forceinline__ Mainloop(const Arguments& args, const Barriers& barriers, u32 shared, i32 index)
      : args(args), consumer{barriers, shared, index}, softmax{{${exponent_scale}}} {}

  // The tile's first block, each of the others, and what is left after the last one.
  template <bool kMasked>
  __device__ __forceinline__ void begin(const RowsOfWarpgroup& rows, i32 block) {
    run_block<true, kMasked>(rows, block);
  }
  template <bool kMasked>
  __device__ __forceinline__ void step(const RowsOfWarpgroup& rows, i32 block) {
    run_block<false, kMasked>(rows, block);
  }
  __device__ __forceinline__ void end() {}

 private:
  template <bool kFirst, bool kMasked>
  __device__ __forceinline__ void run_block(const RowsOfWarpgroup& rows, i32 block) {
    consumer.wait_k();
    consumer.wait_order();
    consumer.issue_qk(s);              // S = Q Kᵀ
//% if pair_tiles
    PairTerms terms(args, rows, block, consumer);
//% end
    wgmma_wait_group<0>();
    wgmma_landed(s);
    consumer.pass_order();
    consumer.release_k();
    ScoreFunction(args).modify(s);
//% if pair_tiles
    terms.apply<kMasked>(s);
//% end
//% if terms_of_rows
    apply_terms<kMasked>(s, args, rows, block);
//% end
    if (kMasked) mask_scores(s, args, rows, block);
    if (kFirst)
      softmax.first<${may_hide}>(s);
    else
      softmax.update<${may_hide_and_masked}>(s);
    consumer.put_probabilities(s${kept_keys});
    if (!kFirst) softmax.rescale(o);
    consumer.wait_v();
    consumer.issue_pv(o);              // O = O + P V
    wgmma_wait_group<0>();
    wgmma_landed(o);
    consumer.release_v();
  }
};
