__device__ __forceinline__ AttendedKeys attended_keys(const Arguments& args, const SequenceRows& rows, i32 query) {
  return {0, clamp_to_keys(rows, query + rows.moved + args.mask_offset + 1)};
}
