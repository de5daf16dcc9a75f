// The last key that a query attends to; below 0 if it attends to none. Does not fall from one row to the next.
__device__ __forceinline__ i32 last_key(const Arguments& args, i32 row) {
  const i64 diagonal = static_cast<i64>(row) + args.mask_offset;  // may leave 32 bits
  const i64 last = args.seq_kv - 1;
  return static_cast<i32>(diagonal < -1 ? -1 : diagonal < last ? diagonal : last);
}
