// Whose rows a tile works on. Here the sequences lie one behind the other: as the call says in the device's memory, sequence b is the rows from cu_seqlens[b]
// up to, and without, cu_seqlens[b + 1], of which the first ones count, as many as the call says, all of them where it says nothing. What lies behind, and what
// lies in other sequences, reaches no result. Rows behind the last sequence are stored with it and do not count.
//% if longest_sequence
// Nor do those of a sequence for which tensors of pairs have no elements.
//% end
struct Sequence {
  i32 batch, first_query, queries, first_key, keys;
  i32 stored_queries, stored_keys;  // also those that do not count

  Sequence() = default;
  __device__ __forceinline__ Sequence(const Arguments& args, i32 batch) : batch(batch) {
    const bool is_last = batch == args.batch - 1;
    const i32 end_of_queries = begin_of(args.cu_seqlens_q, batch + 1, args.seq_q), end_of_keys = begin_of(args.cu_seqlens_kv, batch + 1, args.seq_kv);
    first_query = begin_of(args.cu_seqlens_q, batch, args.seq_q);
//% if longest_sequence
    queries = used_rows(args.seqused_q, batch, at_most(args.max_seq_q, rows_between(first_query, end_of_queries)));
//% else
    queries = used_rows(args.seqused_q, batch, rows_between(first_query, end_of_queries));
//% end
    stored_queries = rows_between(first_query, is_last ? args.seq_q : end_of_queries);
    first_key = begin_of(args.cu_seqlens_kv, batch, args.seq_kv);
//% if longest_sequence
    keys = used_rows(args.seqused_kv, batch, at_most(args.max_seq_kv, rows_between(first_key, end_of_keys)));
//% else
    keys = used_rows(args.seqused_kv, batch, rows_between(first_key, end_of_keys));
//% end
    stored_keys = rows_between(first_key, is_last ? args.seq_kv : end_of_keys);
  }

  // The elements between the first one of a tensor and the first one of the sequence, for tensors of queries and of keys.
  __device__ __forceinline__ i64 query_offset(i64 /*stride_batch*/, i64 stride_row) const { return first_query * stride_row; }
  __device__ __forceinline__ i64 key_offset(i64 /*stride_batch*/, i64 stride_row) const { return first_key * stride_row; }
  // Those before its plane of a tensor of pairs.
  __device__ __forceinline__ i64 pair_offset(i64 stride_batch) const { return batch * stride_batch; }

  // Whatever the numbers say, no row that is not there is touched.
  __device__ __forceinline__ static i32 begin_of(const i32* begins, i32 batch, i32 all) {
    const i32 row = ld_global_i32(begins + batch);
    return row < 0 ? 0 : row < all ? row : all;
  }

 private:
  __device__ __forceinline__ static i32 rows_between(i32 begin, i32 end) { return begin < end ? end - begin : 0; }
//% if longest_sequence
  __device__ __forceinline__ static i32 at_most(i32 most, i32 rows) { return rows < most ? rows : most; }
//% end
  __device__ __forceinline__ static i32 used_rows(const i32* counts, i32 batch, i32 stored) {
    if (counts == nullptr) return stored;
    const i32 rows = ld_global_i32(counts + batch);
    return rows < 0 ? 0 : rows < stored ? rows : stored;
  }
};
__device__ __forceinline__ i32 query_count(const Arguments&, const Sequence& sequence) { return sequence.queries; }
__device__ __forceinline__ i32 key_count(const Arguments&, const Sequence& sequence) { return sequence.keys; }
__device__ __forceinline__ i32 stored_queries(const Arguments&, const Sequence& sequence) { return sequence.stored_queries; }
__device__ __forceinline__ i32 stored_keys(const Arguments&, const Sequence& sequence) { return sequence.stored_keys; }
// Those of a sequence that count.
__device__ __forceinline__ i32 queries_of_batch(const Arguments& args, i32 batch) { return Sequence(args, batch).queries; }

// The rows of a head in a tensor without columns, such as LSE, which is packed: (heads, queries of all sequences); and the place of a row there.
__device__ __forceinline__ i32 packed_query_rows(const Arguments& args) { return args.seq_q; }
__device__ __forceinline__ i64 packed_query_row(const Arguments& args, const Sequence& sequence, i32 head, i64 row) {
  return static_cast<i64>(head) * args.seq_q + sequence.first_query + row;
}

// A head's tiles of `rows` rows each, of all sequences, and so the blocks of rows that it has in workspaces. Sequence b's begin at number
// cu_seqlens[b] / rows + b, those of the first one at 0: so many are enough for the ones before, whatever their lengths, and no sum over them is needed. Some
// numbers are of no tile: there is no row from their first one on.
__device__ __forceinline__ i32 first_tile_of(i32 sequence, i32 begin, i32 rows) { return sequence == 0 ? 0 : begin / rows + sequence; }
// The lanes of a warp look together, all for the same number: each at one of the sequences that are in question, or of as many as there are lanes that divide
// them. So few loads wait for each other.
struct TileOfSequence {
  i32 batch, tile;

  __device__ __forceinline__ TileOfSequence(const i32* begins, i32 sequences, i32 all, i32 number, i32 rows) {
    const auto first_tile = [&](i32 sequence) { return first_tile_of(sequence, Sequence::begin_of(begins, sequence, all), rows); };
    batch = 0;             // the last one whose first tile is not behind this one, or a sequence before that
    i32 left = sequences;  // in question, from `batch` on
    while (left > 1) {
      const i32 apart = (left - 1) / kWarpSize + 1, place = static_cast<i32>(lane_index()) * apart;
      const bool begun = place < left && first_tile(batch + place) <= number;
      const i32 last = apart * static_cast<i32>(bfind_b32(redux_sync_or_b32(begun ? 1u << lane_index() : 0)));
      batch += last;
      left = left - last < apart ? left - last : apart;
    }
    tile = number - first_tile(batch);
  }
};
__device__ __forceinline__ i32 workspace_batch(const Sequence&) { return 0; }
template <i32 kRows>
__device__ __forceinline__ i32 blocks_of_queries(const Arguments& args) {
  return args.seq_q / kRows + args.batch;
}
template <i32 kRows>
__device__ __forceinline__ i32 blocks_of_keys(const Arguments& args) {
  return args.seq_kv / kRows + args.batch;
}
template <i32 kRows>
__device__ __forceinline__ i32 first_block_of_queries(const Sequence& sequence) {
  return first_tile_of(sequence.batch, sequence.first_query, kRows);
}
template <i32 kRows>
__device__ __forceinline__ i32 first_block_of_keys(const Sequence& sequence) {
  return first_tile_of(sequence.batch, sequence.first_key, kRows);
}

//% include attention/ends_of_sequence
