// Whose rows a tile works on. Here every sequence of the batch has the lengths of the problem, and a batch entry of its own in each tensor.
struct Sequence {
  i32 batch;

  Sequence() = default;
  __device__ __forceinline__ Sequence(const Arguments&, i32 batch) : batch(batch) {}

  // The elements between the first one of a tensor and the first one of the sequence, for tensors of queries and of keys.
  __device__ __forceinline__ i64 query_offset(i64 stride_batch, i64 /*stride_row*/) const { return batch * stride_batch; }
  __device__ __forceinline__ i64 key_offset(i64 stride_batch, i64 /*stride_row*/) const { return batch * stride_batch; }
};
__device__ __forceinline__ i32 query_count(const Arguments& args, const Sequence&) { return args.seq_q; }
__device__ __forceinline__ i32 key_count(const Arguments& args, const Sequence&) { return args.seq_kv; }

// The place of a row in a tensor without columns, such as LSE, which is packed: (batch, heads, queries).
__device__ __forceinline__ i64 packed_query_row(const Arguments& args, const Sequence& sequence, i32 head, i64 row) {
  return (static_cast<i64>(sequence.batch) * args.heads_q + head) * args.seq_q + row;
}
