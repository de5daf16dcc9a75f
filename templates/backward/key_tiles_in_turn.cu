// CTAs take tiles in the order in which they begin to run, whatever order the hardware starts them in, and wait only for CTAs that have taken
// theirs before: of those that run, the one whose tile came first waits for nobody, so that some CTA always goes on.
// Of a head the last tile comes first: under a causal mask it sees the fewest queries and adds to each block before the tiles that meet the
// block later.
struct KeyTile {
  i32 tile, batch_head;  // batch_head: of the keys
  __device__ __forceinline__ KeyTile(const Arguments& args, u32 shared) {
    if (thread_index() == 0) st_shared_b32(shared + kDsOffset, atom_relaxed_gpu_global_add_u32(args.tile_counter, 1));
    bar_sync();
    const u32 taken = ld_shared_b32(shared + kDsOffset), tiles = static_cast<u32>(args.key_tiles);
    tile = static_cast<i32>(tiles - 1 - taken % tiles);
    batch_head = static_cast<i32>(taken / tiles);
  }
};
