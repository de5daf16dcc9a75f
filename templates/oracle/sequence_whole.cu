// The rows of a batch entry that count, and how far the mask's diagonals have moved.
struct SequenceRows {
  i64 batch;
  i32 queries, keys, first_query = 0, first_key = 0;
  i32 stored_queries, stored_keys;
  i64 moved = 0;

  __device__ __forceinline__ SequenceRows(const Arguments& args, i64 batch) : batch(batch), queries(args.seq_q), keys(args.seq_kv), stored_queries(queries), stored_keys(keys) {}
  // The batch entry of the tensors that has the rows.
  __device__ __forceinline__ i64 batch_of_rows() const { return batch; }
};

// The one of a row of the queries of a batch entry.
__device__ __forceinline__ SequenceRows sequence_of_query(const Arguments& args, i64 batch, i32 /*row*/) { return SequenceRows(args, batch); }
