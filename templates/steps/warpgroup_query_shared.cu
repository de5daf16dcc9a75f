// Q as the A operand of Q Kᵀ: read from shared memory at each step.
struct QueryOperand {
  u64 descriptor;
  __device__ __forceinline__ void load(u32 tile) { descriptor = matrix_descriptor(tile, kQPanelStride); }
  template <bool kAccumulate>
  __device__ __forceinline__ void multiply(ScoreFragments& s, i32 step, u64 keys) const {
    wgmma_ss<kAccumulate, false>(s, descriptor + column_step(step, kQPanelStride), keys);
  }
};
