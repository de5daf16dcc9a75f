// CTAs take numbers in the order in which they begin to run, whatever order the hardware starts them in, and wait only for CTAs that have taken
// smaller ones: of those that run, the one with the smallest waits for nobody, so that some CTA always goes on.
__device__ __forceinline__ i32 take_tile_id(const Arguments& args, u32 shared) {
  if (thread_index() == 0) st_shared_b32(shared + kTicketOffset, atom_relaxed_gpu_global_add_u32(args.tile_counter, 1));
  bar_sync();
  return static_cast<i32>(ld_shared_b32(shared + kTicketOffset));
}
