// Whose rows a tile works on. Here every sequence of the batch has the lengths of the problem, and a batch entry of its own in each tensor.
struct Sequence {
  i32 batch;

  Sequence() = default;
  __device__ __forceinline__ Sequence(const Arguments&, i32 batch) : batch(batch) {}

  // The elements between the first one of a tensor and the first one of the sequence, for tensors of queries and of keys.
  __device__ __forceinline__ i64 query_offset(i64 stride_batch, i64 /*stride_row*/) const { return batch * stride_batch; }
  __device__ __forceinline__ i64 key_offset(i64 stride_batch, i64 /*stride_row*/) const { return batch * stride_batch; }
  // Those before its plane of a tensor of pairs.
  __device__ __forceinline__ i64 pair_offset(i64 stride_batch) const { return batch * stride_batch; }
};
__device__ __forceinline__ i32 query_count(const Arguments& args, const Sequence&) { return args.seq_q; }
__device__ __forceinline__ i32 key_count(const Arguments& args, const Sequence&) { return args.seq_kv; }

//% include attention/stored_rows

// The diagonals of the mask.
__device__ __forceinline__ i64 first_offset(const Arguments& args, const Sequence&) { return args.first_offset; }
__device__ __forceinline__ i64 last_offset(const Arguments& args, const Sequence&) { return args.mask_offset; }
