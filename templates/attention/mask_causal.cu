// Which pairs are attended to: key <= query + mask_offset. The first and the last one of a row do not fall from one row to the next; a row
// without any has its first behind its last.
__device__ __forceinline__ i32 last_key(const Arguments& args, const Sequence& sequence, i32 query) {
  const i64 diagonal = static_cast<i64>(query) + args.mask_offset;  // may leave 32 bits
  const i64 last = sequence.keys(args) - 1;
  return static_cast<i32>(diagonal < -1 ? -1 : diagonal < last ? diagonal : last);
}
__device__ __forceinline__ i32 first_query(const Arguments& args, const Sequence& sequence, i32 key) {
  const i64 first = static_cast<i64>(key) - args.mask_offset;
  return static_cast<i32>(first < 0 ? 0 : first < sequence.queries(args) ? first : sequence.queries(args));
}

//% include attention/hidden_keys
