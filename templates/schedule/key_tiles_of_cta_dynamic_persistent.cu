// The tile that comes next, whichever CTA asks for it.
struct NextTile {
  __device__ __forceinline__ i32 take(const Arguments& args) {
    return static_cast<i32>(grid_size() / kCluster + atom_relaxed_gpu_global_add_u32(args.tile_counter, 1));
  }
};
//% include schedule/key_tiles_taken_ahead
