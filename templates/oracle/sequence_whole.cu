// The rows of a batch entry that count, and how far the mask's diagonals have moved.
struct SequenceRows {
  i32 queries, keys;
  i64 moved = 0;

  __device__ __forceinline__ SequenceRows(const Arguments& args, i64 /*batch*/) : queries(args.seq_q), keys(args.seq_kv) {}
};
