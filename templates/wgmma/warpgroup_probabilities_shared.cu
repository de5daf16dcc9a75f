// P as the A operand of P V, in shared memory: panels of the warpgroup's 64 rows, the last one filled as far as there are keys.
struct ProbabilityOperand {
  static constexpr i32 kPPanels = (kBlockKv + kPanelColumns - 1) / kPanelColumns;
  static constexpr u32 kPPanelStride = 64 * kPanelBytes;
  static_assert(kPOffset >= kVOffset + kVStages * kKvTileBytes && kBarrierOffset >= kPOffset + kConsumers * kPPanels * kPPanelStride);
  u32 place;

  // Each warp stores its 16 rows: when all four have seen that the product with the P before has landed, and before any issues the next.
  __device__ __forceinline__ void put(const ScoreFragments& s, u32 shared, i32 consumer${kept_parameters}) {
    const u32 base = shared + kPOffset + consumer * kPPanels * kPPanelStride, lane = lane_index();
    const u32 row = swizzled(base + (warp_index() % 4 * 16 + lane % 16) * kPanelBytes + lane / 16 * 16);
    bar_sync_named(kProbabilities + consumer, kWarpgroup);
#pragma unroll
    for (i32 step = 0; step < kKeySteps; ++step) {
      u32 words[4];
#pragma unroll
      for (i32 i = 0; i < 4; ++i) words[i] = pack_elements(s[8 * step + 2 * i], s[8 * step + 2 * i + 1]);
//% if dropout
      const KeptElements kept = dropout.of_keys(args, block * kKeySteps + step);
#pragma unroll
      for (i32 i = 0; i < 4; ++i) words[i] = kept.of_pair(words[i], i / 2, i % 2);
//% end
      const u32 byte = 32 * step;
      stmatrix_x4((row ^ byte % kPanelBytes) + byte / kPanelBytes * kPPanelStride, words);
    }
    fence_proxy_async();
    bar_sync_named(kProbabilities + consumer, kWarpgroup);
    place = tile_place(base, kPPanelStride);
  }
  __device__ __forceinline__ void multiply(OutputFragments& o, i32 step, u64 values) const {
    wgmma_ss<true, true>(o, matrix_descriptor(place + column_step(step, kPPanelStride)), values);
  }
};
