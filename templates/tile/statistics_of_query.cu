// LSE and delta of the block of kRows queries that a query lies in, as backward_delta leaves them.
__device__ __forceinline__ const float* statistics_of_query(const Arguments& args, const Sequence& sequence, i32 head, i32 query) {
  const i64 blocks = blocks_of_queries<kRows>(args), block_of_head = (static_cast<i64>(workspace_batch(sequence)) * args.heads_q + head) * blocks;
  return args.statistics + 2 * kRows * (block_of_head + first_block_of_queries<kRows>(sequence) + query / kRows);
}
