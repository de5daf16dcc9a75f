// A tile of kTile rows, of queries or of keys, among those of all heads: whose it is, and its first row there. The tiles of sequence b begin at number
// cu_seqlens[b] / kTile + b, those of the first one at 0.
struct OracleTile {
  i64 sequence = 0, batch = 0;  // batch: of the tensors, which have one
  i32 head, first;

  __device__ __forceinline__ static OracleTile of_queries(const Arguments& args, i32 number, i32 tiles) { return OracleTile(args, number, tiles, args.cu_seqlens_q, args.seq_q); }
  __device__ __forceinline__ static OracleTile of_keys(const Arguments& args, i32 number, i32 tiles) { return OracleTile(args, number, tiles, args.cu_seqlens_kv, args.seq_kv); }

 private:
  __device__ __forceinline__ OracleTile(const Arguments& args, i32 number, i32 tiles, const i32* begins, i32 all) : head(number / tiles) {
    i64 begin = 0;
    for (i64 next = 1; next < args.batch; ++next) {
      const i32 row = ld_global_i32(begins + next);
      const i64 from = (row > all ? all : row < 0 ? 0 : row) / kTile + next;
      if (from > number % tiles) break;
      sequence = next;
      begin = from;
    }
    first = static_cast<i32>(number % tiles - begin) * kTile;
  }
};
__device__ __forceinline__ i64 batch_of_tensors(const Arguments&) { return 1; }
