// What the tensors of pairs hold for a thread's two keys and sixteen queries, step after step, from tiles whose rows are queries. Element i is that of its
// score 8·step + i.
struct PairElements {
//% if bias_by_matrices
  u32 bias_place, bias_step;  // where the row lies that this lane gives to four matrices of eight queries and eight keys
  u32 bias_pairs[4];
//% end
//% if bias_by_rows
  u32 bias_places[4], bias_step;  // where its first four elements lie
  u32 bias_elements[8];
//% end
//% if attention_mask
  u32 attention_mask_places[4], attention_mask_step;  // where the words with its first four elements lie
  u32 attention_mask_elements[8];
//% end

  // first_key: of the warp, in the tile.
  __device__ __forceinline__ PairElements(const Arguments& args, u32 shared, i32 stage, i32 first_key) {
    const i32 lane = static_cast<i32>(lane_index());
//% if bias_by_matrices
    bias_place = BiasPanels::at(BiasPanels::row(bias_tile(shared, stage), row_of_bias(args, lane / 16 * 8 + lane % 8)), BiasPanels::kElement * (first_key + lane / 8 % 2 * 8));
    bias_step = row_of_bias(args, 16) * BiasPanels::kRowBytes;
//% end
//% if pairs_by_rows
#pragma unroll
    for (i32 i = 0; i < 4; ++i) {
      const i32 query = lane % 4 * 2 + i % 2, key = first_key + lane / 4 + i / 2 * 8;
//% if bias_by_rows
      bias_places[i] = BiasPanels::at(BiasPanels::row(bias_tile(shared, stage), row_of_bias(args, query)), BiasPanels::kElement * key);
//% end
//% if attention_mask
      attention_mask_places[i] = AttentionMaskPanels::at(AttentionMaskPanels::row(attention_mask_tile(shared, stage), row_of_attention_mask(args, query)), key / 4 * 4);
//% end
    }
//% end
//% if bias_by_rows
    bias_step = row_of_bias(args, 8) * BiasPanels::kRowBytes;
//% end
//% if attention_mask
    attention_mask_step = row_of_attention_mask(args, 8) * AttentionMaskPanels::kRowBytes;
//% end
  }
  __device__ __forceinline__ void read(i32 step) {
//% if bias_by_matrices
    ldmatrix_x4_trans(bias_pairs, bias_place + step * bias_step);
//% end
//% if pairs_by_rows
#pragma unroll
    for (i32 i = 0; i < 8; ++i) {
//% if bias_by_rows
      bias_elements[i] = ld_shared_b32(bias_places[i % 4] + (2 * step + i / 4) * bias_step);
//% end
//% if attention_mask
      attention_mask_elements[i] = ld_shared_b32(attention_mask_places[i % 4] + (2 * step + i / 4) * attention_mask_step) >> lane_index() / 4 % 4 * 8;
//% end
    }
//% end
  }
//% if bias_by_matrices
  __device__ __forceinline__ float bias(i32 i) const { return i % 2 ? cvt_f32_high_${bias_type}(bias_pairs[i / 2]) : cvt_f32_low_${bias_type}(bias_pairs[i / 2]); }
//% end
//% if bias_by_rows
  __device__ __forceinline__ float bias(i32 i) const { return bits_to_f32(bias_elements[i]); }
//% end
//% if attention_mask
  __device__ __forceinline__ bool attends(i32 i) const { return (attention_mask_elements[i] & 0xff) != 0; }
//% end
};

// What does not come by tensor map: the part of the warp's keys of a tile. query, first_key: its first ones, in the sequence; key: the warp's first, in the
// tile.
__device__ __forceinline__ void load_pairs(const Arguments& args, const Sequence& sequence, u32 shared, i32 stage, i32 head, i32 query, i32 first_key, i32 key) {
  const i32 last = last_of(key_count(args, sequence));
//% for pair_operands
  if (!args.${pair_operands.name}_by_map)
    ${pair_operands.constant}Panels::load<kBlockQ, 16>(${pair_operands.name}_tile(shared, stage), 0, key, first_key, last, [&](i32 i) { return ${pair_operands.name}_of_query(args, sequence, head, query + i); });
//% end
}

// What the exponents of a thread's two keys and a block's queries gain by tensors of pairs${and_alibi_words}. What these hold may be anything for a pair that
// the attention mask hides and, where kMasked, for one whose score is -inf or whose query sees nothing or does not exist.
template <bool kMasked>
struct TermsOfPairs {
  PairElements pairs;
//% if alibi
  AlibiOfPairs alibi;
//% end

  __device__ __forceinline__ void read(i32 step) { pairs.read(step); }
  __device__ __forceinline__ float exponent(float score, float scale_log2, float lse, i32 ${from_of_terms}, i32 i) const {
//% if bias
    constexpr float kLog2E = 1.44269504088896340736f;
//% end
    const bool counts = (!kMasked || (score != negative_infinity() && lse != -negative_infinity()))${and_attends};
    return counts ? fma_rn_f32(score, scale_log2, ${gain_less_lse}) : negative_infinity();
  }
};
