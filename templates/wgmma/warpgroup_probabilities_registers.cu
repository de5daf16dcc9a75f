// P as the A operand of P V, in registers: the elements of S lie as wgmma wants them of A.
struct ProbabilityOperand {
  u32 fragments[kBlockKv / 4];

  __device__ __forceinline__ void put(const ScoreFragments& s, u32, i32) {
#pragma unroll
    for (i32 i = 0; i < kBlockKv / 4; ++i) fragments[i] = pack_elements(s[2 * i], s[2 * i + 1]);
  }
  __device__ __forceinline__ void multiply(OutputFragments& o, i32 step, u64 values) const { wgmma_rs<true, true>(o, fragments, step, values); }
};
