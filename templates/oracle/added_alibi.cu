// What a score gains beside its product, of a query and a key of their sequence: by how much its key misses the last one of the sequence, less the same of its
// query, times the head's slope.
__device__ __forceinline__ double added_score(const Arguments& args, const SequenceRows& rows, i64 batch, i32 head, i32 query, i32 key) {
  const double slope = static_cast<double>(ld_global_f32(args.alibi_slopes + batch * args.alibi_slopes_stride_batch + head * args.alibi_slopes_stride_head));
  const i64 apart = (static_cast<i64>(rows.keys) - key) - (static_cast<i64>(rows.queries) - query);
  return slope * static_cast<double>(apart < 0 ? apart : -apart);
}
