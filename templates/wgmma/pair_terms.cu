//% include wgmma/pair_elements

// What does not come by tensor map: the warp's rows of a tile whose first key is first_key.
__device__ __forceinline__ void load_pairs(const Arguments& args, const RowsOfWarpgroup& rows, i32 first_key, const Consumer& consumer) {
  const i32 row_of_tile = 64 * consumer.index + static_cast<i32>(warp_index() % 4) * 16, row = rows.first_row - static_cast<i32>(lane_index() / 4);
  const i32 last = last_of(key_count(args, rows.sequence));
//% for pair_operands
  if (!args.${pair_operands.name}_by_map)
    ${pair_operands.constant}Panels::load<16, kBlockKv>(${pair_operands.name}_tile(consumer.shared, consumer.pairs.stage), row_of_tile, 0, first_key, last, [&](i32 i) {
      return ${pair_operands.name}_of_query(args, rows.sequence, rows.head_of(row + i), QueryTile::position_of(row + i));
    });
//% end
}

// What tensors of pairs hold for a block's scores, and all that is added to these.
struct PairTerms {
  const Arguments& args;
  const RowsOfWarpgroup& rows;
  i32 block;
  Consumer& consumer;
//% if pairs_ahead
  PairElements steps[kKeySteps];
//% end

  // Beside the product for S, which nothing of it waits for.
  __device__ __forceinline__ PairTerms(const Arguments& args, const RowsOfWarpgroup& rows, i32 block, Consumer& consumer)
      : args(args), rows(rows), block(block), consumer(consumer) {
    consumer.wait_pairs();
    load_pairs(args, rows, block * kBlockKv, consumer);
//% if pairs_ahead
    const PairElements first(args, consumer.shared, consumer.pairs.stage, consumer.index);
#pragma unroll
    for (i32 step = 0; step < kKeySteps; ++step) {
      steps[step] = first;
      steps[step].read(step);
    }
    leave();
//% end
  }
  // kEdge: as ScoreTerms has it.
  template <bool kEdge>
  __device__ __forceinline__ void apply(ScoreFragments& s) {
//% if alibi
    const i32 first_key = block * kBlockKv + static_cast<i32>(lane_index() % 4 * 2);
    const auto terms_of = [&](i32 half) {
      const i32 query = QueryTile::position_of(rows.first_row + 8 * half);
      return ScoreTerms{${terms_of_row}};
    };
    const ScoreTerms terms[2] = {terms_of(0), terms_of(1)};
//% else
    const ScoreTerms terms[2] = {};
//% end
//% if !pairs_ahead
    PairElements elements(args, consumer.shared, consumer.pairs.stage, consumer.index);
//% end
#pragma unroll
    for (i32 step = 0; step < kKeySteps; ++step) {
//% if pairs_ahead
      const PairElements& elements = steps[step];
//% else
      elements.read(step);
//% end
#pragma unroll
      for (i32 i = 0; i < 8; ++i) {
        float& score = s[8 * step + i];
        score = terms[i / 2 % 2].apply<kEdge>(args, score, 16 * step + i / 4 * 8 + i % 2${values_of_pair});
      }
    }
//% if !pairs_ahead
    leave();
//% end
  }

 private:
  __device__ __forceinline__ void leave() {
    fence_proxy_async();  // no product waits for what was read: the release must not overtake it
    bar_warp_sync();
    consumer.release_pairs();
  }
};
