// Tensors with an element for each pair of a query and a key of a head. A dimension along which one repeats has a stride of 0. Elements of keys lie one after
// the other. What is read belongs to the sequence, whatever the coordinates: those of no query or no key are the last ones'. Kernels hide such pairs, or
// multiply their P by rows of zeros, which takes a number.
__device__ __forceinline__ i32 last_of(i32 count) { return count > 0 ? count - 1 : 0; }
__device__ __forceinline__ i32 clamped(i32 x, i32 count) { return x < count ? x : last_of(count); }
//% if bias
__device__ __forceinline__ const char* bias_of_query(const Arguments& args, const Sequence& sequence, i32 head, i32 query) {
  const i64 offset = sequence.pair_offset(args.bias_stride_batch) + head * args.bias_stride_head;
  return static_cast<const char*>(args.bias) + ${bias_bytes} * (offset + clamped(query, query_count(args, sequence)) * args.bias_stride_row);
}
// In natural units; -inf hides the key.
__device__ __forceinline__ float bias_of_key(const char* of_query, i32 key) { return ${load_bias}; }
//% end
//% if attention_mask
__device__ __forceinline__ const char* attention_mask_of_query(const Arguments& args, const Sequence& sequence, i32 head, i32 query) {
  const i64 offset = sequence.pair_offset(args.attention_mask_stride_batch) + head * args.attention_mask_stride_head;
  return static_cast<const char*>(args.attention_mask) + (offset + clamped(query, query_count(args, sequence)) * args.attention_mask_stride_row);
}
__device__ __forceinline__ bool attends(const char* of_query, i32 key) { return ld_global_u8(of_query + key) != 0; }
//% end
//% if pair_gain
// What the exponent of a pair's P gains: powers of two, -inf of a hidden one.
__device__ __forceinline__ float pair_gain(const Arguments& args, const Sequence& sequence, i32 head, i32 query, i32 key) {
  const i32 stored = clamped(key, key_count(args, sequence));
//% if attention_mask
  if (!attends(attention_mask_of_query(args, sequence, head, query), stored)) return negative_infinity();
//% end
//% if bias
  constexpr float kLog2E = 1.44269504088896340736f;
  return kLog2E * bias_of_key(bias_of_query(args, sequence, head, query), stored);
//% else
  return 0;
//% end
}
//% end
