// A warp has all queries of its keys: Pᵀ and dSᵀ are A operands from registers. dSᵀ goes to shared memory as well, for dQ.
__device__ __forceinline__ void add_gradients(KeyGradients& acc, DqAccumulation& dq, const ScoreFragments& p, const ScoreFragments& ds,
                                              const WarpPart& part, const TilePairRing& ring, i32 block, u32 shared) {
  put_scores(shared + kDsOffset, part.row, part.query, ds);
  gemm_columns<kBlockQ / 16>(acc.dv, PackedScores{p}, ring.second_tile(), part.first_chunk);   // dV = dV + Pᵀ dO
  gemm_columns<kBlockQ / 16>(acc.dk, PackedScores{ds}, ring.first_tile(), part.first_chunk);   // dK = dK + dSᵀ Q
  dq.await_ticket(block);
  bar_sync();
  dq.add(block);  // dQ = dQ + dS K
}
