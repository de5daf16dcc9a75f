// The rows of one of the sequences that lie one behind the other, and how far the mask's diagonals have moved: with the difference of the sequence's ends.
struct SequenceRows {
  i64 batch;
  i32 queries, keys, first_query, first_key;
  i32 stored_queries, stored_keys;  // also those that do not count, of the last sequence all behind it
  i64 moved = 0;

  __device__ __forceinline__ SequenceRows(const Arguments& args, i64 sequence) : batch(sequence) {
    first_query = within(ld_global_i32(args.cu_seqlens_q + batch), args.seq_q);
    first_key = within(ld_global_i32(args.cu_seqlens_kv + batch), args.seq_kv);
    const i32 end_of_keys = within(ld_global_i32(args.cu_seqlens_kv + batch + 1), args.seq_kv);
//% if pair_tensors
    // Those for which tensors of pairs have elements.
    queries = counted(args.seqused_q, batch, within(end_of_queries(args, batch) - first_query, args.max_seq_q));
    keys = counted(args.seqused_kv, batch, within(end_of_keys - first_key, args.max_seq_kv));
//% else
    queries = counted(args.seqused_q, batch, end_of_queries(args, batch) - first_query);
    keys = counted(args.seqused_kv, batch, end_of_keys - first_key);
//% end
    const bool is_last = batch == args.batch - 1;
    stored_queries = (is_last ? args.seq_q : end_of_queries(args, batch)) - first_query;
    stored_keys = (is_last ? args.seq_kv : end_of_keys) - first_key;
    if (args.diagonals_move != 0) moved = (static_cast<i64>(keys) - queries) - (static_cast<i64>(args.seq_kv) - args.seq_q);
  }

  // The batch entry of the tensors that has the rows.
  __device__ __forceinline__ i64 batch_of_rows() const { return 0; }
  __device__ __forceinline__ static i32 end_of_queries(const Arguments& args, i64 sequence) { return within(ld_global_i32(args.cu_seqlens_q + sequence + 1), args.seq_q); }

 private:
  __device__ __forceinline__ static i32 within(i32 row, i32 most) { return row > most ? most : row < 0 ? 0 : row; }
  __device__ __forceinline__ static i32 counted(const i32* said, i64 batch, i32 stored) {
    const i32 most = stored < 0 ? 0 : stored;
    return said == nullptr ? most : within(ld_global_i32(said + batch), most);
  }
};

// The one of a row of all queries: the first that ends behind it. There is one of each row.
__device__ __forceinline__ SequenceRows sequence_of_query(const Arguments& args, i64 /*batch*/, i32 row) {
  i64 sequence = 0;
  while (sequence < args.batch - 1 && SequenceRows::end_of_queries(args, sequence) <= row) ++sequence;
  return SequenceRows(args, sequence);
}
