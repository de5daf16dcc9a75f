// Whose rows a tile works on. Here the sequences lie one behind the other: as the call says in the device's memory, sequence b is the rows from cu_seqlens[b]
// up to, and without, cu_seqlens[b + 1], of which the first ones count, as many as the call says, all of them where it says nothing. What lies behind, and what
// lies in other sequences, reaches no result.
struct Sequence {
  i32 batch, first_query, stored_queries, queries, first_key, keys;

  Sequence() = default;
  __device__ __forceinline__ Sequence(const Arguments& args, i32 batch) : batch(batch) {
    first_query = begin_of(args.cu_seqlens_q, batch, args.seq_q);
    stored_queries = rows_between(first_query, begin_of(args.cu_seqlens_q, batch + 1, args.seq_q));
    queries = used_rows(args.seqused_q, batch, stored_queries);
    first_key = begin_of(args.cu_seqlens_kv, batch, args.seq_kv);
    keys = used_rows(args.seqused_kv, batch, rows_between(first_key, begin_of(args.cu_seqlens_kv, batch + 1, args.seq_kv)));
  }

  // The elements between the first one of a tensor and the first one of the sequence, for tensors of queries and of keys.
  __device__ __forceinline__ i64 query_offset(i64 /*stride_batch*/, i64 stride_row) const { return first_query * stride_row; }
  __device__ __forceinline__ i64 key_offset(i64 /*stride_batch*/, i64 stride_row) const { return first_key * stride_row; }

  // Whatever the numbers say, no row that is not there is touched.
  __device__ __forceinline__ static i32 begin_of(const i32* begins, i32 batch, i32 all) {
    const i32 row = ld_global_i32(begins + batch);
    return row < 0 ? 0 : row < all ? row : all;
  }

 private:
  __device__ __forceinline__ static i32 rows_between(i32 begin, i32 end) { return begin < end ? end - begin : 0; }
  __device__ __forceinline__ static i32 used_rows(const i32* counts, i32 batch, i32 stored) {
    if (counts == nullptr) return stored;
    const i32 rows = ld_global_i32(counts + batch);
    return rows < 0 ? 0 : rows < stored ? rows : stored;
  }
};
__device__ __forceinline__ i32 query_count(const Arguments&, const Sequence& sequence) { return sequence.queries; }
__device__ __forceinline__ i32 key_count(const Arguments&, const Sequence& sequence) { return sequence.keys; }

// The place of a row in a tensor without columns, such as LSE, which is packed: (heads, queries of all sequences).
__device__ __forceinline__ i64 packed_query_row(const Arguments& args, const Sequence& sequence, i32 head, i64 row) {
  return static_cast<i64>(head) * args.seq_q + sequence.first_query + row;
}

// A tile among those of all sequences. Sequence b's begin at number cu_seqlens[b] / rows + b: so many are enough for the ones before, whatever their
// lengths, and no sum over them is needed. Some numbers are of no tile: there is no row from their first one on.
struct TileOfSequence {
  i32 batch, tile;

  __device__ __forceinline__ TileOfSequence(const i32* begins, i32 sequences, i32 all, i32 number, i32 rows) {
    const auto first_tile = [&](i32 sequence) { return Sequence::begin_of(begins, sequence, all) / rows + sequence; };
    i32 last = sequences - 1;
    batch = 0;  // the last one whose first tile is not behind this one
    while (batch < last) {
      const i32 middle = batch + (last - batch + 1) / 2;
      if (first_tile(middle) <= number) {
        batch = middle;
      } else {
        last = middle - 1;
      }
    }
    tile = number - first_tile(batch);
    if (tile < 0) tile = (all + rows - 1) / rows;  // there are rows before the first sequence
  }
};

//% include attention/ends_of_sequence
