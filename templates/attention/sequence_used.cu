// Whose rows a tile works on. Here the rows of a sequence are the first ones of a batch entry: as many queries and keys as the call says in the device's
// memory, all of them where it says nothing. What lies behind reaches no result: queries there see nothing, and nobody sees keys there.
struct Sequence {
  i32 batch, queries, keys;

  Sequence() = default;
  __device__ __forceinline__ Sequence(const Arguments& args, i32 batch)
      : batch(batch), queries(used_rows(args.seqused_q, batch, args.seq_q)), keys(used_rows(args.seqused_kv, batch, args.seq_kv)) {}

  // The elements between the first one of a tensor and the first one of the sequence, for tensors of queries and of keys.
  __device__ __forceinline__ i64 query_offset(i64 stride_batch, i64 /*stride_row*/) const { return batch * stride_batch; }
  __device__ __forceinline__ i64 key_offset(i64 stride_batch, i64 /*stride_row*/) const { return batch * stride_batch; }
  // Those before its plane of a tensor of pairs.
  __device__ __forceinline__ i64 pair_offset(i64 stride_batch) const { return batch * stride_batch; }

 private:
  // Whatever the number says, no row that is not there is touched.
  __device__ __forceinline__ static i32 used_rows(const i32* counts, i32 batch, i32 stored) {
    if (counts == nullptr) return stored;
    const i32 rows = ld_global_i32(counts + batch);
    return rows < 0 ? 0 : rows < stored ? rows : stored;
  }
};
__device__ __forceinline__ i32 query_count(const Arguments&, const Sequence& sequence) { return sequence.queries; }
__device__ __forceinline__ i32 key_count(const Arguments&, const Sequence& sequence) { return sequence.keys; }

//% include attention/stored_rows

//% include attention/ends_of_sequence
