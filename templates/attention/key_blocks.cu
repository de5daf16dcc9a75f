// Blocks of keys that some queries attend to, from the first of these to the last: all of [unmasked_begin, unmasked_end) to all of them, the
// others of [begin, end) in part.
struct KeyBlocks {
//% if masked_begin
  i32 begin, unmasked_begin, unmasked_end, end;
//% else
  static constexpr i32 begin = 0, unmasked_begin = 0;  // what a query attends to begins with the first key
  i32 unmasked_end, end;
//% end

  KeyBlocks() = default;
  __device__ __forceinline__ KeyBlocks(const Arguments& args, const Sequence& sequence, i32 first_query, i32 last_query) {
//% if masked_begin
    begin = begin_of(args, sequence, first_query);
    unmasked_begin = unmasked_begin_of(args, sequence, last_query);
//% end
    unmasked_end = unmasked_end_of<0>(args, sequence, first_query);
    end = end_of(args, sequence, last_query);
  }

//% if masked_begin
  __device__ __forceinline__ static i32 begin_of(const Arguments& args, const Sequence& sequence, i32 first_query) {
    return first_key(args, sequence, first_query) / kBlockKv;
  }
  __device__ __forceinline__ static i32 unmasked_begin_of(const Arguments& args, const Sequence& sequence, i32 last_query) {
    return (first_key(args, sequence, last_query) + kBlockKv - 1) / kBlockKv;
  }
//% end
  // kAttended: keys behind the unmasked blocks that each query attends to, if it attends to any.
  template <i32 kAttended>
  __device__ __forceinline__ static i32 unmasked_end_of(const Arguments& args, const Sequence& sequence, i32 first_query) {
    return (last_key(args, sequence, first_query) + 1 - kAttended) / kBlockKv;
  }
  __device__ __forceinline__ static i32 end_of(const Arguments& args, const Sequence& sequence, i32 last_query) {
    return (last_key(args, sequence, last_query) + kBlockKv) / kBlockKv;
  }
};
