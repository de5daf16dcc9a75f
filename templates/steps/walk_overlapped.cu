// S of a block of keys is issued with P V of the block before it: the softmax of the one runs beside the product of the other.
struct Walk {
  const Arguments& args;
  Consumer consumer;
  Softmax softmax;
  ScoreFragments s;
  ProbabilityFragments p;
  OutputFragments o;

  template <bool kFirst, bool kMasked>
  __device__ __forceinline__ void softmax_of(i32 tile_number, i32 row, i32 block) {
    if (kMasked) mask_scores(s, args, row, block);
    if (kFirst)
      softmax.first<kMasked>(s);
    else
      softmax.update<kMasked>(s, {args, tile_number, row, block});
  }
  // The tile's first block: there is no product to run beside it.
  template <bool kMasked>
  __device__ __forceinline__ void begin(i32 tile_number, i32 row, i32 block) {
    consumer.wait_k();
    consumer.wait_turn();
    consumer.issue_qk(s);
    consumer.pass_turn();
    wgmma_wait_group<0>();
    wgmma_landed(s);
    consumer.release_k();
    softmax_of<true, kMasked>(tile_number, row, block);
    pack_scores(s, p);
  }
  template <bool kMasked>
  __device__ __forceinline__ void step(i32 tile_number, i32 row, i32 block) {
    consumer.wait_k();
    consumer.wait_turn();
    consumer.issue_qk(s);
    consumer.wait_v();
    consumer.issue_pv(o, p);
    consumer.pass_turn();
    wgmma_wait_group<1>();
    wgmma_landed(s);
    consumer.release_k();
    softmax_of<false, kMasked>(tile_number, row, block);
    wgmma_wait_group<0>();
    wgmma_landed(o);
    consumer.release_v();
    pack_scores(s, p);
    softmax.rescale(o);
    if (block > 0) softmax.follow();
  }
  // The product of the tile's last block.
  __device__ __forceinline__ void end() {
    consumer.wait_v();
    consumer.issue_pv(o, p);
    wgmma_wait_group<0>();
    wgmma_landed(o);
    consumer.release_v();
  }
};

__device__ __forceinline__ void consume(const Arguments& args, const Barriers& barriers, u32 shared, i32 index) {
  Walk walk{args, {barriers, shared, index}, {{args.softmax_scale_log2}}};
  Consumer& consumer = walk.consumer;
  ConsumerTiles tiles;
  if (index == kConsumers - 1) consumer.pass_turn();
  for (i32 number; (number = tiles.next(args, barriers, consumer.q)) >= 0;) {
    const QueryTile tile(args, number);
    const RowsOfWarpgroup rows(args, tile, index);
    consumer.wait_q();
    consumer.load_query();
    skip_blocks(consumer, rows.unused_blocks);
    clear(walk.o);
    if (rows.blocks > 0) {
      i32 block = rows.blocks - 1;
      walk.begin<kPartialBlocks>(number, rows.first_row, block--);
      if (kPartialBlocks)
        for (; block >= rows.whole_blocks; --block) walk.step<true>(number, rows.first_row, block);
      for (; block >= 0; --block) walk.step<false>(number, rows.first_row, block);
      walk.end();
    } else {
      walk.softmax.row_sum[0] = walk.softmax.row_sum[1] = 0;
      bar_warp_sync();
    }
    consumer.release_q();
    store_rows(args, QueryTile(args, computed_anew(number)), rows.first_row, walk.o, walk.softmax);
  }
  if (index == 0) consumer.wait_turn();
}
