// P V of a block of keys and S of the next one are issued together, and the next warpgroup may issue when both have landed: while a warpgroup
// works on its softmax, the tensor cores have the products of the next warpgroup.
struct Mainloop {
  const Arguments& args;
  Consumer consumer;
  Softmax softmax;
  ScoreFragments s;
  OutputFragments o;

  // Leaves the fragments unset: the first product overwrites S, and setting it would touch registers of that product.
  __device__ __forceinline__ Mainloop(const Arguments& args, const Barriers& barriers, u32 shared, i32 index)
      : args(args), consumer{barriers, shared, index}, softmax{{${exponent_scale}}} {}

  // The tile's first block: there is no P yet.
  template <bool kMasked>
  __device__ __forceinline__ void begin(const RowsOfWarpgroup& rows, i32 block) {
    consumer.wait_k();
    consumer.wait_order();
    consumer.issue_qk(s);              // S = Q Kᵀ
//% if pair_tiles
    PairTerms terms(args, rows, block, consumer);
//% end
    take_scores();
    ScoreFunction(args).modify(s);
//% if pair_tiles
    terms.apply<kMasked>(s);
//% end
//% if terms_of_rows
    apply_terms<kMasked>(s, args, rows, block);
//% end
    if (kMasked) mask_scores(s, args, rows, block);
    softmax.first<${may_hide}>(s);
    consumer.put_probabilities(s${kept_keys});
  }
  template <bool kMasked>
  __device__ __forceinline__ void step(const RowsOfWarpgroup& rows, i32 block) {
    consumer.wait_k();
    consumer.wait_v();
    consumer.wait_order();
    consumer.issue_pv(o);              // O = O + P V
    consumer.issue_qk(s);              // S = Q Kᵀ
//% if pair_tiles
    PairTerms terms(args, rows, block, consumer);
//% end
    wgmma_wait_group<1>();
    wgmma_landed(o);
    consumer.release_v();
    take_scores();
    ScoreFunction(args).modify(s);
//% if pair_tiles
    terms.apply<kMasked>(s);
//% end
//% if terms_of_rows
    apply_terms<kMasked>(s, args, rows, block);
//% end
    if (kMasked) mask_scores(s, args, rows, block);
    softmax.update<${may_hide_and_masked}>(s);
    consumer.put_probabilities(s${kept_keys});
    softmax.rescale(o);
  }
  // The product of the tile's last block waits for nobody: its warpgroup has no other that could go with it.
  __device__ __forceinline__ void end() {
    consumer.wait_v();
    consumer.issue_pv(o);              // O = O + P V
    wgmma_wait_group<0>();
    wgmma_landed(o);
    consumer.release_v();
  }

 private:
  __device__ __forceinline__ void take_scores() {
    wgmma_wait_group<0>();
    wgmma_landed(s);
    consumer.pass_order();
    consumer.release_k();
  }
};
