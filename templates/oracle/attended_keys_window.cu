__device__ __forceinline__ AttendedKeys attended_keys(const Arguments& args, i32 query) {
  return {clamp_to_keys(args, static_cast<i64>(query) + args.first_offset), clamp_to_keys(args, static_cast<i64>(query) + args.mask_offset + 1)};
}
