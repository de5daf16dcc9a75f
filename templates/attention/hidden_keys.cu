// The keys that a query does not attend to, by their distance from a key.
struct HiddenKeys {
  i32 last;  // that is attended to

  __device__ __forceinline__ HiddenKeys(const Arguments& args, const Sequence& sequence, i32 query, i32 from)
//% if short_sequences
      : last((is_outside(args, sequence, query) ? -1 : last_key(args, sequence, query)) - from) {}
//% else
      : last(last_key(args, sequence, query) - from) {}
//% end
  __device__ __forceinline__ void move(i32 keys) { last -= keys; }
  __device__ __forceinline__ bool has(i32 distance) const { return distance > last; }
};
