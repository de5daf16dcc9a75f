// Rows that a batch entry has in the tensors of queries and of keys, and in workspaces.
__device__ __forceinline__ i32 stored_queries(const Arguments& args) { return args.seq_q; }
__device__ __forceinline__ i32 stored_keys(const Arguments& args) { return args.seq_kv; }

// The place of a row in a tensor without columns, such as LSE, which is packed: (batch, heads, queries).
__device__ __forceinline__ i64 packed_query_row(const Arguments& args, const Sequence& sequence, i32 head, i64 row) {
  return (static_cast<i64>(sequence.batch) * args.heads_q + head) * args.seq_q + row;
}
