// The last query among those up to `query`, and whether `query` lies behind all of them.
__device__ __forceinline__ i32 last_inside(const Arguments&, const Sequence& sequence, i32 query) { return query < sequence.queries ? query : sequence.queries - 1; }
__device__ __forceinline__ bool is_outside(const Arguments&, const Sequence& sequence, i32 query) { return query >= sequence.queries; }

// How far the diagonals of the mask move: with the ends of the sequence, or not at all.
__device__ __forceinline__ i64 moved_diagonals(const Arguments& args, const Sequence& sequence) {
  return args.diagonals_move ? static_cast<i64>(sequence.keys - args.seq_kv) - (sequence.queries - args.seq_q) : 0;
}
__device__ __forceinline__ i64 first_offset(const Arguments& args, const Sequence& sequence) { return args.first_offset + moved_diagonals(args, sequence); }
__device__ __forceinline__ i64 last_offset(const Arguments& args, const Sequence& sequence) { return args.mask_offset + moved_diagonals(args, sequence); }
