// Q as the A operand of Q Kᵀ: read from shared memory at each step.
struct QueryOperand {
  u32 place;
  __device__ __forceinline__ void load(u32 tile) { place = tile_place(tile, kQPanelStride); }
  template <bool kAccumulate>
  __device__ __forceinline__ void multiply(ScoreFragments& s, i32 step, u64 keys) const {
    wgmma_ss<kAccumulate, false>(s, matrix_descriptor(place + column_step(step, kQPanelStride)), keys);
  }
};
