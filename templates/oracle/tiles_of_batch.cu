// A tile of kTile rows, of queries or of keys, among those of all heads: whose it is, and its first row there.
struct OracleTile {
  i64 sequence, batch;  // batch: of the tensors
  i32 head, first;

  __device__ __forceinline__ static OracleTile of_queries(const Arguments& args, i32 number, i32 tiles) { return OracleTile(number, tiles, args.heads_q); }
  __device__ __forceinline__ static OracleTile of_keys(const Arguments& args, i32 number, i32 tiles) { return OracleTile(number, tiles, args.heads_q / args.group_size); }

 private:
  __device__ __forceinline__ OracleTile(i32 number, i32 tiles, i32 heads)
      : sequence(number / tiles / heads), batch(sequence), head(number / tiles % heads), first(number % tiles * kTile) {}
};
__device__ __forceinline__ i64 batch_of_tensors(const Arguments& args) { return args.batch; }
