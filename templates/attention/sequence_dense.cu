// Whose rows a tile works on. Here every sequence of the batch has the lengths of the problem, and a batch entry of its own in each tensor.
struct Sequence {
  i32 batch;

  Sequence() = default;
  __device__ __forceinline__ Sequence(const Arguments&, i32 batch) : batch(batch) {}

  // Its lengths.
  __device__ __forceinline__ i32 queries(const Arguments& args) const { return args.seq_q; }
  __device__ __forceinline__ i32 keys(const Arguments& args) const { return args.seq_kv; }

  // Elements from a tensor's first one to the sequence's, of a tensor of queries and of one of keys.
  __device__ __forceinline__ i64 query_offset(i64 stride_batch, i64 /*stride_row*/) const { return batch * stride_batch; }
  __device__ __forceinline__ i64 key_offset(i64 stride_batch, i64 /*stride_row*/) const { return batch * stride_batch; }
  // A row of a tensor without columns, such as LSE, which is packed: (batch, heads, queries).
  __device__ __forceinline__ i64 packed_query_row(const Arguments& args, i32 head, i64 row) const {
    return (static_cast<i64>(batch) * args.heads_q + head) * args.seq_q + row;
  }
};
