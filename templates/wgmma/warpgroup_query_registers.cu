// Q as the A operand of Q Kᵀ: its fragments stay in registers.
struct QueryOperand {
  u32 fragments[4 * kDimSteps];

  // Lanes 8 i to 8 i + 7 name the rows of matrix i: rows 0-7 and 8-15 of the warp's sixteen, then the same of the next eight columns.
  __device__ __forceinline__ void load(u32 tile) {
    const u32 lane = lane_index(), row = warp_index() % 4 * 16 + lane % 16;
#pragma unroll
    for (i32 step = 0; step < kDimSteps; ++step) {
      const u32 column_byte = 32 * step + lane / 16 * 16;
      const u32 address = tile + column_byte / kPanelBytes * kQPanelStride + row * kPanelBytes + column_byte % kPanelBytes;
      u32 a[4];
      ldmatrix_x4(a, swizzled(address));
#pragma unroll
      for (i32 i = 0; i < 4; ++i) fragments[4 * step + i] = a[i];
    }
  }
  template <bool kAccumulate>
  __device__ __forceinline__ void multiply(ScoreFragments& s, i32 step, u64 keys) const {
    wgmma_rs<kAccumulate, false>(s, fragments, step, keys);
  }
};
