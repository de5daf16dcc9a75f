// Rows that each batch entry has in the tensors of queries and of keys.
__device__ __forceinline__ i32 stored_queries(const Arguments& args) { return args.seq_q; }
__device__ __forceinline__ i32 stored_keys(const Arguments& args) { return args.seq_kv; }
__device__ __forceinline__ i32 stored_queries(const Arguments& args, const Sequence&) { return stored_queries(args); }
__device__ __forceinline__ i32 stored_keys(const Arguments& args, const Sequence&) { return stored_keys(args); }
// Those of a batch entry that may count.
__device__ __forceinline__ i32 queries_of_batch(const Arguments& args, i32 /*batch*/) { return args.seq_q; }

// Workspaces hold whole blocks of rows: so many of each head, one batch entry after the other; a sequence's begin with those of its head.
__device__ __forceinline__ i32 workspace_batch(const Sequence& sequence) { return sequence.batch; }
template <i32 kRows>
__device__ __forceinline__ i32 blocks_of_queries(const Arguments& args) {
  return (args.seq_q + kRows - 1) / kRows;
}
template <i32 kRows>
__device__ __forceinline__ i32 blocks_of_keys(const Arguments& args) {
  return (args.seq_kv + kRows - 1) / kRows;
}
template <i32 kRows>
__device__ __forceinline__ i32 first_block_of_queries(const Sequence&) {
  return 0;
}
template <i32 kRows>
__device__ __forceinline__ i32 first_block_of_keys(const Sequence&) {
  return 0;
}

// The rows of a head in a tensor without columns, such as LSE, which is packed: (batch, heads, queries); and the place of a row there.
__device__ __forceinline__ i32 packed_query_rows(const Arguments& args) { return args.seq_q; }
__device__ __forceinline__ i64 packed_query_row(const Arguments& args, const Sequence& sequence, i32 head, i64 row) {
  return (static_cast<i64>(sequence.batch) * args.heads_q + head) * args.seq_q + row;
}
