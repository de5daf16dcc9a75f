// dS K of a block: a warp computes kDqRows queries and kDqChunks chunks of columns over all keys of the tile and adds them to the sums.
struct QueryProduct {
  i32 first_query, first_chunk, first_added;
  float* sums;  // of the sequence's first block
  u32 shared;

  __device__ __forceinline__ QueryProduct(const Arguments& args, i64 head, i32 first_block, i32 warp, u32 shared) : shared(shared) {
    first_query = warp / kDqColumnParts * kDqRows;
    // The last part begins early enough to be as wide as the others. The part before it adds the columns that both have.
    first_added = warp % kDqColumnParts * kDqChunks;
    first_chunk = first_added < kChunks - kDqChunks ? first_added : kChunks - kDqChunks;
    sums = args.d_q_sums + sums_place(head, blocks_of_queries<kBlockQ>(args) * kBlockQ, first_block * kBlockQ + first_query, first_chunk);
  }

  __device__ __forceinline__ void add(i32 block) const {
    float acc[kDqRows / 16][kDqChunks][4] = {};
    gemm_columns<kBlockKv / 16>(acc, ScoresOfQueries(shared + kDsOffset, first_query), shared + kKOffset, first_chunk);
    float* block_sums = sums + static_cast<i64>(block) * (kBlockQ / 16 * kChunks * kSumsOfFragment);
#pragma unroll
    for (i32 t = 0; t < kDqRows / 16; ++t) {
#pragma unroll
      for (i32 n = 0; n < kDqChunks; ++n)
        if (kChunks % kDqColumnParts == 0 || first_chunk + n >= first_added)
          add_sums(block_sums + (t * kChunks + n) * kSumsOfFragment, acc[t][n]);
    }
  }
};
