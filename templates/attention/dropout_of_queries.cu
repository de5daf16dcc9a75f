//% include attention/dropout

// Dropout of 16 queries of a head, which are the rows of a warp's fragments. The first round is the same for all keys.
struct QueryDropout {
  u32 mixed, product, key;

  QueryDropout() = default;
  __device__ __forceinline__ QueryDropout(const HeadDropout& head, i32 first_query) {
    mixed = head.queries ^ static_cast<u32>(2 * first_query + static_cast<i32>(lane_index()));
    product = head.keys;
    philox_round(mixed, product, head.key);
    key = head.key + kPhiloxKeyStep;
  }
  // Beside the keys 16·sixteen and on. A word is of eight keys, a half of eight queries.
  __device__ __forceinline__ KeptElements of_keys(const Arguments& args, i32 sixteen) const { return kept_elements<6>(args, mixed ^ static_cast<u32>(sixteen), product, key); }
};
