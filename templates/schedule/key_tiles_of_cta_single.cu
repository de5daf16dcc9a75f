// A CTA takes one tile of keys; the CTAs of a cluster take neighbouring ones.
struct KeyTilesOfCta {
  i32 number;

  __device__ __forceinline__ KeyTilesOfCta(const Arguments& args, const Barriers&, u32 shared) : number(take_tile_id(args, shared) / kCluster) {}
  // Calls work with the index of each tile.
  template <class Work>
  __device__ __forceinline__ void for_each(const Arguments& args, TileSlot, const Work& work) const {
//% if packed_sequences
    const i32 index = tile_in_order(args, number);
    if (index >= 0) work(index);
//% else
    work(tile_in_order(args, number));
//% end
  }
};
