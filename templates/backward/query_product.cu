// dS K of a block: a warp computes kDqRows queries and kDqChunks chunks of columns over all keys of the tile and adds them to the sums.
__device__ __forceinline__ void add_query_gradient(const Arguments& args, i64 head, i32 block, u32 shared) {
  const i32 first_query = warp_index() / kDqColumnParts * kDqRows;
  // The last part begins early enough to be as wide as the others; what it shares with the one before, that one adds.
  const i32 first_added = static_cast<i32>(warp_index() % kDqColumnParts) * kDqChunks;
  const i32 first_chunk = first_added < kChunks - kDqChunks ? first_added : kChunks - kDqChunks;
  float acc[kDqRows / 16][kDqChunks][4] = {};
  gemm_columns<kBlockKv / 16>(acc, ScoresOfQueries{shared + kDsOffset, first_query}, shared + kKOffset, first_chunk);
  float* sums = args.d_q_sums + query_sums_place(args, head, block * kBlockQ + first_query, first_chunk);
#pragma unroll
  for (i32 t = 0; t < kDqRows / 16; ++t) {
#pragma unroll
    for (i32 n = 0; n < kDqChunks; ++n)
      if (first_chunk + n >= first_added) add_query_sums(sums + (t * kChunks + n) * kSumsOfFragment, acc[t][n]);
  }
}
