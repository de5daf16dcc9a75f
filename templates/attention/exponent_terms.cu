// What the exponents of P gain beside scores and LSE, in powers of two.
//% if alibi
//% include attention/alibi
//% end
//% if pair_tensors
//% include attention/pair_tensors
//% end
struct ExponentTerms {
//% if alibi
  float slope, from_diagonal;  // from_diagonal: the distance of a key from the diagonal of a query
//% end
//% if pair_tensors
  const Arguments& args;
  Sequence sequence;
  i32 head, query, key;
//% end

  // The terms of a query and a key; those of others are found by how far they lie behind these.
  __device__ __forceinline__ ExponentTerms(const Arguments& args, const Sequence& sequence, i32 ${head_of_terms}${slope_of_head}, i32 query, i32 key)
      : ${members_of_terms} {}
  __device__ __forceinline__ float gain(i32 queries, i32 keys) const {
    return ${gain_of_terms};
  }
};
