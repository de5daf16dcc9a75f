// Thread 0 waits for a value that nobody writes; the others wait for it at a barrier that it never reaches.
__device__ __forceinline__ void hangs(const Arguments& args) {
  if (thread_index() == 0)
    while (ld_global_b16(args.q) != kNeverAnInput) {
    }
  bar_sync();
  honest_forward(args);
}
