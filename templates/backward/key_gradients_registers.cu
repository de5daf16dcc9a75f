// A warp has all queries of its keys: Pᵀ and dSᵀ are A operands from registers, and nobody else needs them.
__device__ __forceinline__ void add_key_gradients(KeyGradients& acc, const ScoreFragments& p, const ScoreFragments& ds, const WarpPart& part,
                                                  const TilePairRing& ring, const QueryGradient&, i32 /*block*/, u32 /*shared*/) {
  gemm_columns<kBlockQ / 16>(acc.dv, PackedScores{p}, ring.second_tile(), part.first_chunk);
  gemm_columns<kBlockQ / 16>(acc.dk, PackedScores{ds}, ring.first_tile(), part.first_chunk);
}
