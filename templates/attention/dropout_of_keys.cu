//% include attention/dropout

// Dropout of 16 keys, which are the rows of a warp's fragments. What is drawn is turned: lanes draw as where queries are the rows.
struct KeyDropout {
  u32 queries, keys, key;

  KeyDropout() = default;
  __device__ __forceinline__ KeyDropout(const HeadDropout& head, i32 first_key) : queries(head.queries ^ lane_index()), keys(head.keys ^ static_cast<u32>(first_key / 16)), key(head.key) {}
  // Beside the queries 16·sixteen and on. A word is of eight keys, a half of eight queries.
  __device__ __forceinline__ KeptElements of_queries(const Arguments& args, i32 sixteen) const {
    KeptElements kept = kept_elements<7>(args, queries ^ static_cast<u32>(32 * sixteen), keys, key);
#pragma unroll
    for (i32 word = 0; word < 2; ++word) kept.words[word] = movmatrix_trans(kept.words[word]);
    return kept;
  }
};
