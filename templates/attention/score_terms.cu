//% if alibi
//% include attention/alibi_keys
//% end
//% if pair_tensors
//% include attention/pair_tensors
//% end
//% if loads_pairs

// What tensors of pairs hold for a query, from the key `from` on.
struct PairRow {
//% if bias
  const char* bias;
//% end
//% if attention_mask
  const char* mask;
//% end
  i32 from, last;  // last: the distance of the last key

  __device__ __forceinline__ PairRow(const Arguments& args, const Sequence& sequence, i32 head, i32 query, i32 from)
      : ${pair_rows}, from(from), last(last_of(key_count(args, sequence)) - from) {}
  // kEdge: there may be no such key.
  template <bool kEdge>
  __device__ __forceinline__ i32 key(i32 distance) const { return from + (kEdge && distance > last ? last : distance); }
};
//% end

// What happens to the scores of a query between the product and the mask, beside ScoreFunction, by the distance of a key from the key `from`.
struct ScoreTerms {
//% if alibi
  AlibiKeys alibi;
//% end
//% if loads_pairs
  PairRow pairs;
//% end

  // kEdge: the key may lie on either side of the query's diagonal, or be none of the sequence.
  template <bool kEdge>
  __device__ __forceinline__ float apply(const Arguments& ${args_of_terms}, float score, i32 ${distance_of_terms}${elements_of_pair}) const {
//% if loads_pairs
    const i32 key = pairs.key<kEdge>(distance);
//% end
//% if added
    score = fma_rn_f32(score, ${score_scale}, ${added_score});
//% end
//% if attention_mask
    if (${is_hidden}) score = negative_infinity();
//% end
    return score;
  }
};
