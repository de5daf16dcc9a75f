//% if pair_tensors
// Where the element of a pair lies in a tensor of pairs; strides are 0 along dimensions that it has not.
__device__ __forceinline__ i64 place_of_pair(i64 batch, i32 head, i32 query, i32 key, i64 stride_batch, i64 stride_head, i64 stride_row) {
  return batch * stride_batch + head * stride_head + query * stride_row + key;
}

//% end
// What a score gains beside its product, of a query and a key of their sequence; -inf where the key is hidden.
//% if alibi
// By ALiBi: by how much its key misses the last one of the sequence, less the same of its query, times the head's slope.
//% end
__device__ __forceinline__ double added_score(const Arguments& ${added_args}, const SequenceRows& ${added_rows}, i64 ${added_batch}, i32 ${added_head}, i32 ${added_query}, i32 ${added_key}) {
  double added = 0;
//% if alibi
  const double slope = static_cast<double>(ld_global_f32(args.alibi_slopes + batch * args.alibi_slopes_stride_batch + head * args.alibi_slopes_stride_head));
  const i64 apart = (static_cast<i64>(rows.keys) - key) - (static_cast<i64>(rows.queries) - query);
  added = slope * static_cast<double>(apart < 0 ? apart : -apart);
//% end
//% if bias
  const i64 of_bias = place_of_pair(batch, head, query, key, args.bias_stride_batch, args.bias_stride_head, args.bias_stride_row);
  added += ${bias_element};
//% end
//% if attention_mask
  const i64 of_mask = place_of_pair(batch, head, query, key, args.attention_mask_stride_batch, args.attention_mask_stride_head, args.attention_mask_stride_row);
  if (ld_global_u8(static_cast<const char*>(args.attention_mask) + of_mask) == 0) added = negative_infinity_f64();
//% end
  return added;
}
