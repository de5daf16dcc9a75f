// Which pairs are attended to: a band of diagonals, first_offset <= key - query <= mask_offset. The first and the last one of a row do not
// fall from one row to the next; a row without any has its first behind its last.
__device__ __forceinline__ i32 first_key(const Arguments& args, const Sequence& sequence, i32 query) {
  const i64 first = static_cast<i64>(query) + args.first_offset;  // may leave 32 bits
  return static_cast<i32>(first < 0 ? 0 : first < sequence.keys(args) ? first : sequence.keys(args));
}
__device__ __forceinline__ i32 last_key(const Arguments& args, const Sequence& sequence, i32 query) {
  const i64 diagonal = static_cast<i64>(query) + args.mask_offset;
  const i64 last = sequence.keys(args) - 1;
  return static_cast<i32>(diagonal < -1 ? -1 : diagonal < last ? diagonal : last);
}
__device__ __forceinline__ i32 first_query(const Arguments& args, const Sequence& sequence, i32 key) {
  const i64 first = static_cast<i64>(key) - args.mask_offset;
  return static_cast<i32>(first < 0 ? 0 : first < sequence.queries(args) ? first : sequence.queries(args));
}
__device__ __forceinline__ i32 last_query(const Arguments& args, const Sequence& sequence, i32 key) {
  const i64 diagonal = static_cast<i64>(key) - args.first_offset;
  const i64 last = sequence.queries(args) - 1;
  return static_cast<i32>(diagonal < -1 ? -1 : diagonal < last ? diagonal : last);
}

// The keys that a query does not attend to, by their distance from a key.
struct HiddenKeys {
  i32 first, last;  // that are attended to

  __device__ __forceinline__ HiddenKeys(const Arguments& args, const Sequence& sequence, i32 query, i32 from)
      : first(first_key(args, sequence, query) - from), last(last_key(args, sequence, query) - from) {}
  __device__ __forceinline__ void move(i32 keys) {
    first -= keys;
    last -= keys;
  }
  __device__ __forceinline__ bool has(i32 distance) const { return distance < first || distance > last; }
};
