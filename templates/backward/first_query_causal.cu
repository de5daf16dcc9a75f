// The first query that attends to a key; seq_q if none does.
__device__ __forceinline__ i32 first_query(const Arguments& args, i32 key) {
  const i64 first = static_cast<i64>(key) - args.mask_offset;  // may leave 32 bits
  return static_cast<i32>(first < 0 ? 0 : first < args.seq_q ? first : args.seq_q);
}
