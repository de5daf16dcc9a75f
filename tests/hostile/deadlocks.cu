// Thread 0 waits for the CTA, the other lanes of its warp for it: the emulator sees it. What a GPU makes of it, PTX leaves open.
__device__ __forceinline__ void deadlocks(const Arguments& args) {
  if (thread_index() == 0)
    bar_sync();
  else
    bar_warp_sync();
  honest_forward(args);
}
