// The output is right, but Q is not what it was: the next kernel would compute with something else.
__device__ __forceinline__ void writes_inputs(const Arguments& args) {
  honest_forward(args);
  bar_sync();  // Q's first row was read by this CTA alone
  if (owns_first_element(args)) st_global_b16(const_cast<void*>(args.q), kNeverAnInput);
}
