// The queries that do not attend to a key, by their distance from a query. Nobody attends to a key that does not exist.
struct HiddenQueries {
  i32 first;  // that attends to the key
//% if masked_begin
  i32 last;
//% end

  __device__ __forceinline__ HiddenQueries(const Arguments& args, const Sequence& sequence, i32 key, i32 from) {
    const bool exists = key < key_count(args, sequence);
    first = (exists ? first_query(args, sequence, key) : query_count(args, sequence)) - from;
//% if masked_begin
    last = (exists ? last_query(args, sequence, key) : -1) - from;
//% end
  }
//% if masked_begin
  __device__ __forceinline__ bool has(i32 distance) const { return distance < first || distance > last; }
//% else
  __device__ __forceinline__ bool has(i32 distance) const { return distance < first; }
//% end
};
