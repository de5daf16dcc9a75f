// ALiBi: a score loses its head's slope times the keys between it and the query's diagonal, which ends at the last key of the sequence.
//% if powers_of_two
// In powers of two.
//% end
__device__ __forceinline__ float alibi_slope(const Arguments& args, const Sequence& sequence, i32 head) {
  return ${alibi_unit}ld_global_f32(args.alibi_slopes + sequence.batch * args.alibi_slopes_stride_batch + head * args.alibi_slopes_stride_head);
}
// The key of a query's diagonal, which may lie beside all keys of the sequence.
__device__ __forceinline__ i32 alibi_diagonal(const Arguments& args, const Sequence& sequence, i32 query) {
  return query + (key_count(args, sequence) - query_count(args, sequence));
}
// The query on whose diagonal a key lies.
__device__ __forceinline__ i32 query_on_diagonal(const Arguments& args, const Sequence& sequence, i32 key) {
  return key - (key_count(args, sequence) - query_count(args, sequence));
}
