// Q as the A operand of Q Kᵀ: read from shared memory at each step.
struct QueryOperand {
  u32 place;
  __device__ __forceinline__ void load(u32 tile) { place = tile_place(tile, kQPanelStride); }
  template <bool kAccumulate>
  __device__ __forceinline__ void multiply(ScoreFragments& s, i32 step, u64 keys) const {
    // Descriptors of many steps would be kept from block to block, beyond what uniform registers hold: each would come from a lane's.
    const u32 first = kDimSteps > 8 ? static_cast<u32>(opaque_i32(static_cast<i32>(place))) : place;
    wgmma_ss<kAccumulate, false>(s, matrix_descriptor(first + column_step(step, kQPanelStride)), keys);
  }
};
