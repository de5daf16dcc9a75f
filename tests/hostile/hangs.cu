// Thread 0 waits for a value that nobody writes; the others wait for it at a barrier that it never reaches. A loop without an effect
// would be the compiler's to remove: waiting for copies is one.
__device__ __forceinline__ void hangs(const Arguments& args) {
  if (thread_index() == 0)
    while (ld_global_b16(args.q) != kNeverAnInput) cp_async_wait_group<0>();
  bar_sync();
  honest_forward(args);
}
