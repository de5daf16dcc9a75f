// P as the A operand of P V, in registers: the elements of S lie as wgmma wants them of A.
struct ProbabilityOperand {
  u32 fragments[kBlockKv / 4];

  __device__ __forceinline__ void put(const ScoreFragments& s, u32, i32${kept_parameters}) {
//% if dropout
#pragma unroll
    for (i32 step = 0; step < kKeySteps; ++step) {
      const KeptElements kept = dropout.of_keys(args, block * kKeySteps + step);
#pragma unroll
      for (i32 i = 0; i < 4; ++i) fragments[4 * step + i] = kept.of_pair(pack_elements(s[8 * step + 2 * i], s[8 * step + 2 * i + 1]), i / 2, i % 2);
    }
//% else
#pragma unroll
    for (i32 i = 0; i < kBlockKv / 4; ++i) fragments[i] = pack_elements(s[2 * i], s[2 * i + 1]);
//% end
  }
  __device__ __forceinline__ void multiply(OutputFragments& o, i32 step, u64 values) const { wgmma_rs<true, true>(o, fragments, step, values); }
};
