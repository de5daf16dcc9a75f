// Warps that share keys have a part of the queries each, and compute a part of the columns of dV and dK from all of them: Pᵀ and dSᵀ go
// through shared memory.
__device__ __forceinline__ void add_gradients(KeyGradients& acc, DqAccumulation& dq, const ScoreFragments& p, const ScoreFragments& ds,
                                              const WarpPart& part, const TilePairRing& ring, i32 block, u32 shared) {
  put_scores(shared + kPOffset, part.row, part.query, p);
  put_scores(shared + kDsOffset, part.row, part.query, ds);
  dq.await_ticket(block);
  bar_sync();
//% if dq_first
  dq.add(block);  // dQ = dQ + dS K, first, so that its adds to memory drain beside the products that follow
//% end
  gemm_columns<kBlockQ / 16>(acc.dv, ScoresOfKeys{shared + kPOffset, part.row}, ring.second_tile(), part.first_chunk);   // dV = dV + Pᵀ dO
  gemm_columns<kBlockQ / 16>(acc.dk, ScoresOfKeys{shared + kDsOffset, part.row}, ring.first_tile(), part.first_chunk);   // dK = dK + dSᵀ Q
//% if dq_last
  dq.add(block);  // dQ = dQ + dS K
//% end
}
