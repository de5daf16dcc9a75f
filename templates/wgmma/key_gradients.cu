// What a softmax warpgroup holds of its keys, and what it computes with a block of queries between the products.
struct KeyGradients {
  const Arguments& args;
  const KeyTile& tile;
  SoftmaxWarpgroup warpgroup;
  ScoreFunction score;
//% if pair_tensors
  i32 head;          // of the queries
//% end
//% if alibi
  float slope;       // of the query head
  i32 diagonal_key;  // as LiveBlocks has it
//% end
  ScoreFragments s, dp;
  PackedScores p, ds;
//% if slopes_apart
  PackedScores sloped;  // what dSᵀ is made of
//% end
  GradientFragments dk, dv;
//% if dq_by_softmax
  DqShare dq;
//% end

  // Leaves s and dp unset: the first product overwrites them.
  __device__ __forceinline__ KeyGradients(const Arguments& args, const KeyTile& tile, const SoftmaxWarpgroup& warpgroup)
      : args(args), tile(tile), warpgroup(warpgroup)${and_score}${and_dq} {
#pragma unroll
    for (i32 i = 0; i < kHeadDimV / 2; ++i) dk[i] = dv[i] = 0;
  }

//% if early
  // LSE of the block whose S has been issued. What is read early does not wait for S, but maybe for warpgroup 0's adds, which take the same way. A wait
  // comes first since it ends a basic block: ptxas would put the loads among the products, and the next of these would wait with them.
//% if waits_for_do
  // That for dO was to come anyway.
//% end
  __device__ __forceinline__ LseColumns read_lse() const {
//% if waits_for_do
    warpgroup.wait_do();
//% else
    warpgroup.wait_q();
//% end
    return LseColumns(warpgroup.lse());
  }
//% end
//% if keeps_late
  // Pᵀ has 16 bits from its exponential on, and the sign says what dropout does not keep, until dSᵀ has been made.
//% else
  // Pᵀ has 16 bits from its exponential on.
//% end
  __device__ __forceinline__ void exponentiate_scores(i32 block, bool masked${lse_parameter}) {
    score.modify(s);
//% if alibi
    const AlibiPlace place(diagonal_key, warpgroup.first_key_of_thread() - warpgroup.first_key, block);
//% end
//% if alibi_mended
    if (masked) {
      mend_scores_beyond(s, slope, args.softmax_scale_log2, place);
      mask_scores(s, args, tile.sequence, tile.first_key + warpgroup.first_key_of_thread(), block * kBlockQ);
    }
//% else
    if (masked) mask_scores(s, args, tile.sequence, tile.first_key + warpgroup.first_key_of_thread(), block * kBlockQ);
//% end
//% if slopes_shared
    warpgroup.wait_ds();
//% end
//% if pair_tensors
//% if pair_tiles
    load_pairs(args, tile.sequence, warpgroup.shared, warpgroup.q.stage, head, block * kBlockQ, tile.first_key, warpgroup.first_key_of_warp());
    const PairElements pairs(args, warpgroup.shared, warpgroup.q.stage, warpgroup.first_key_of_warp());
//% if whole_apart
    if (!masked)
      exponentiate(s${slopes_of_block}, args.softmax_scale_log2, ${lse_columns}, TermsOfPairs<false>{pairs${and_alibi_of_pairs}});
    else
//% end
      exponentiate(s${slopes_of_block}, args.softmax_scale_log2, ${lse_columns}, TermsOfPairs<true>{pairs${and_alibi_of_pairs}});
//% else
    exponentiate(s${slopes_of_block}, args.softmax_scale_log2, ${lse_columns}, TermsOfPairs{args, tile.sequence, head, block * kBlockQ + static_cast<i32>(lane_index() % 4 * 2), tile.first_key + warpgroup.first_key_of_thread()${and_alibi_of_pairs}});
//% end
//% else
//% if alibi
//% if alibi_mended
    exponentiate(s${slopes_of_block}, args.softmax_scale_log2, ${lse_columns}, AlibiOfRows(slope, place));
//% else
//% if alibi_of_rows
    if (masked)
      exponentiate(s${slopes_of_block}, args.softmax_scale_log2, ${lse_columns}, AlibiOfPairs(slope, place));
    else
      exponentiate(s${slopes_of_block}, args.softmax_scale_log2, ${lse_columns}, AlibiOfRows(slope, place));
//% else
    exponentiate(s${slopes_of_block}, args.softmax_scale_log2, ${lse_columns}, AlibiOfPairs(slope, place));
//% end
//% end
//% else
    exponentiate(s${slopes_of_block}, args.softmax_scale_log2, ${lse_columns});
//% end
//% end
//% if slopes_shared
    bar_warp_sync();
//% end
//% if !dropout
    pack_scores(p, s);
//% end
//% if slopes_apart
//% if dropout
//% if capped
    pack_scores(p, s);
    drop_scores(p, sloped);
//% else
    keep_scores(p, sloped);
//% end
//% end
//% end
  }
  __device__ __forceinline__ void differentiate_scores(${delta_parameter}) {
    differentiate(dp, ${p_of_ds}, ${delta_columns}${and_dropout_scale});
    pack_scores(ds, dp);
//% if keeps_late
    keep_scores(p, p);
//% end
    warpgroup.publish(ds);
  }
  __device__ __forceinline__ void release_last_q() {
    warpgroup.release_q(warpgroup.q.stage);
    warpgroup.q.advance();
  }
};
