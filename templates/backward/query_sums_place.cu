constexpr i32 kSumsOfFragment = 16 * 8;  // floats

// Rows of a head in the workspace: its queries, padded to whole blocks.
__device__ __forceinline__ i32 padded_rows(const Arguments& args) { return (args.seq_q + kBlockQ - 1) / kBlockQ * kBlockQ; }

// Where a fragment of 16 queries, from `row` on, and the columns of a chunk has its sums. head: of the queries, in all batch entries.
__device__ __forceinline__ i64 query_sums_place(const Arguments& args, i64 head, i32 row, i32 chunk) {
  return ((head * padded_rows(args) + row) / 16 * kChunks + chunk) * kSumsOfFragment;
}
