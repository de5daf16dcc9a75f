// A query attends to the keys with first_offset <= key - query <= last_offset, a band of diagonals. Neither the first nor the last key of a query
// falls from one query to the next. A query that attends to no key has its first key behind its last one.
__device__ __forceinline__ i32 first_key(const Arguments& args, const Sequence& sequence, i32 query) {
  const i64 first = query + first_offset(args, sequence);  // may leave 32 bits
  return static_cast<i32>(first < 0 ? 0 : first < key_count(args, sequence) ? first : key_count(args, sequence));
}
__device__ __forceinline__ i32 last_key(const Arguments& args, const Sequence& sequence, i32 query) {
  const i64 diagonal = query + last_offset(args, sequence);
  const i64 last = key_count(args, sequence) - 1;
  return static_cast<i32>(diagonal < -1 ? -1 : diagonal < last ? diagonal : last);
}
__device__ __forceinline__ i32 first_query(const Arguments& args, const Sequence& sequence, i32 key) {
  const i64 first = key - last_offset(args, sequence);
  return static_cast<i32>(first < 0 ? 0 : first < query_count(args, sequence) ? first : query_count(args, sequence));
}
__device__ __forceinline__ i32 last_query(const Arguments& args, const Sequence& sequence, i32 key) {
  const i64 diagonal = key - first_offset(args, sequence);
  const i64 last = query_count(args, sequence) - 1;
  return static_cast<i32>(diagonal < -1 ? -1 : diagonal < last ? diagonal : last);
}

// The keys that a query does not attend to, by their distance from a key.
struct HiddenKeys {
  i32 first, last;  // that are attended to

  __device__ __forceinline__ HiddenKeys(const Arguments& args, const Sequence& sequence, i32 query, i32 from)
//% if short_sequences
      : first(first_key(args, sequence, query) - from), last((is_outside(args, sequence, query) ? -1 : last_key(args, sequence, query)) - from) {}
//% else
      : first(first_key(args, sequence, query) - from), last(last_key(args, sequence, query) - from) {}
//% end
  __device__ __forceinline__ void move(i32 keys) {
    first -= keys;
    last -= keys;
  }
  __device__ __forceinline__ bool has(i32 distance) const { return distance < first || distance > last; }
};
