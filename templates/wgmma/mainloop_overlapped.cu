// S of a block of keys is issued with P V of the block before it: the softmax of the one runs beside the product of the other.
struct Mainloop {
  // O is rescaled beside the product for S; a wide one before it, which was seen to be faster.
  static constexpr bool kRescaleLate = kHeadDimV <= 128;

  const Arguments& args;
  Consumer consumer;
  Softmax softmax;
  ScoreFragments s;
  OutputFragments o;

  // Leaves the fragments unset: the first product overwrites S, and setting it would touch registers of that product.
  __device__ __forceinline__ Mainloop(const Arguments& args, const Barriers& barriers, u32 shared, i32 index)
      : args(args), consumer{barriers, shared, index}, softmax{{${exponent_scale}}} {}

  // The tile's first block: there is no product to run beside it.
  template <bool kMasked>
  __device__ __forceinline__ void begin(const RowsOfWarpgroup& rows, i32 block) {
    consumer.wait_k();
    consumer.wait_order();
    consumer.issue_qk(s);              // S = Q Kᵀ
    consumer.pass_order();
//% if pair_tiles
    PairTerms terms(args, rows, block, consumer);
//% end
    wgmma_wait_group<0>();
    wgmma_landed(s);
    consumer.release_k();
    softmax_of<true, kMasked>(rows, block${terms_of_block});
    consumer.put_probabilities(s${kept_keys});
  }
  template <bool kMasked>
  __device__ __forceinline__ void step(const RowsOfWarpgroup& rows, i32 block) {
    consumer.wait_k();
    consumer.wait_order();
    consumer.issue_qk(s);              // S = Q Kᵀ
    if (kRescaleLate) softmax.rescale(o);
    consumer.wait_v();
    consumer.issue_pv(o);              // O = O + P V
    consumer.pass_order();
//% if pair_tiles
    PairTerms terms(args, rows, block, consumer);
//% end
    wgmma_wait_group<1>();
    wgmma_landed(s);
    consumer.release_k();
    softmax_of<false, kMasked>(rows, block${terms_of_block});
    wgmma_wait_group<0>();
    wgmma_landed(o);
    consumer.release_v();
    consumer.put_probabilities(s${kept_keys});
    if (!kRescaleLate) softmax.rescale(o);
  }
  // The first block of a tile beside the last product of the tile before it, whose O is whole afterwards, with its maxima and sums in
  // `earlier`.
  template <bool kMasked>
  __device__ __forceinline__ void join(const RowsOfWarpgroup& rows, i32 block, Softmax& earlier) {
    consumer.wait_k();
    consumer.wait_order();
    consumer.issue_qk(s);              // S = Q Kᵀ
    if (kRescaleLate) softmax.rescale(o);
    consumer.wait_v();
    consumer.issue_pv(o);              // O = O + P V
    consumer.pass_order();
//% if pair_tiles
    PairTerms terms(args, rows, block, consumer);
//% end
    wgmma_wait_group<1>();
    wgmma_landed(s);
    consumer.release_k();
    earlier = softmax;
    softmax_of<true, kMasked>(rows, block${terms_of_block});
    wgmma_wait_group<0>();
    wgmma_landed(o);
    consumer.release_v();
    consumer.put_probabilities(s${kept_keys});
  }
  // The product of the tile's last block.
  __device__ __forceinline__ void end() {
    if (kRescaleLate) softmax.rescale(o);
    consumer.wait_v();
    consumer.issue_pv(o);              // O = O + P V
    wgmma_wait_group<0>();
    wgmma_landed(o);
    consumer.release_v();
  }

 private:
  template <bool kFirst, bool kMasked>
  __device__ __forceinline__ void softmax_of(const RowsOfWarpgroup& rows, i32 block${parameter_of_terms}) {
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
  }
};
