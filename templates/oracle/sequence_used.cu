// The rows of a batch entry that count, and how far the mask's diagonals have moved: with the difference of the sequence's ends.
struct SequenceRows {
  i64 batch;
  i32 queries, keys, first_query = 0, first_key = 0;
  i32 stored_queries, stored_keys;  // also those that do not count
  i64 moved = 0;

  __device__ __forceinline__ SequenceRows(const Arguments& args, i64 batch)
      : batch(batch), queries(within(args.seqused_q, batch, args.seq_q)), keys(within(args.seqused_kv, batch, args.seq_kv)), stored_queries(args.seq_q), stored_keys(args.seq_kv) {
    if (args.diagonals_move != 0) moved = (static_cast<i64>(keys) - queries) - (static_cast<i64>(args.seq_kv) - args.seq_q);
  }
  // The batch entry of the tensors that has the rows.
  __device__ __forceinline__ i64 batch_of_rows() const { return batch; }

 private:
  __device__ __forceinline__ static i32 within(const i32* said, i64 batch, i32 most) {
    if (said == nullptr || ld_global_i32(said + batch) > most) return most;
    return ld_global_i32(said + batch) < 0 ? 0 : ld_global_i32(said + batch);
  }
};

// The one of a row of the queries of a batch entry.
__device__ __forceinline__ SequenceRows sequence_of_query(const Arguments& args, i64 batch, i32 /*row*/) { return SequenceRows(args, batch); }
