// Writes one logarithm more than there are rows: memory that is mapped, and another tensor's.
__device__ __forceinline__ void out_of_bounds(const Arguments& args) {
  honest_forward(args);
  if (owns_first_element(args)) st_global_f32(args.lse + static_cast<i64>(args.batch) * args.heads_q * args.seq_q, 0.0f);
}
