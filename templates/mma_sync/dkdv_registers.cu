// A warp has all queries of its keys: Pᵀ and dSᵀ are A operands from registers, and no other warp needs them. Another kernel computes dQ.
__device__ __forceinline__ void add_gradients(KeyGradients& acc, DqAccumulation&, const ScoreFragments& p, const ScoreFragments& ds,
                                              const WarpPart& part, const TilePairRing& ring, i32 /*block*/, u32 /*shared*/) {
  gemm_columns<kBlockQ / 16>(acc.dv, PackedScores{p}, ring.second_tile(), part.first_chunk);   // dV = dV + Pᵀ dO
  gemm_columns<kBlockQ / 16>(acc.dk, PackedScores{ds}, ring.first_tile(), part.first_chunk);   // dK = dK + dSᵀ Q
}
