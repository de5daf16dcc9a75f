// The blocks of keys [begin, end) that some of the queries from top_query to bottom_query attend to. All of these queries attend to all keys of
// the blocks [unmasked_begin, unmasked_end).
struct KeyBlocks {
//% if masked_begin
  i32 begin, unmasked_begin, unmasked_end, end;
//% else
//% include attention/first_blocks_${first_blocks}
  i32 unmasked_end, end;
//% end

  KeyBlocks() = default;
  __device__ __forceinline__ KeyBlocks(const Arguments& args, const Sequence& sequence, i32 top_query, i32 bottom_query) {
//% if masked_begin
    begin = begin_of(args, sequence, top_query);
    unmasked_begin = unmasked_begin_of(args, sequence, bottom_query);
//% end
    unmasked_end = unmasked_end_of(args, sequence, top_query);
    end = end_of(args, sequence, bottom_query);
  }

//% if masked_begin
  __device__ __forceinline__ static i32 begin_of(const Arguments& args, const Sequence& sequence, i32 top_query) {
    return first_key(args, sequence, top_query) / kBlockKv;
  }
  __device__ __forceinline__ static i32 unmasked_begin_of(const Arguments& args, const Sequence& sequence, i32 bottom_query) {
    return (first_key(args, sequence, bottom_query) + kBlockKv - 1) / kBlockKv;
  }
//% end
  __device__ __forceinline__ static i32 unmasked_end_of(const Arguments& args, const Sequence& sequence, i32 top_query) {
    return (last_key(args, sequence, top_query) + 1) / kBlockKv;
  }
  __device__ __forceinline__ static i32 end_of(const Arguments& args, const Sequence& sequence, i32 bottom_query) {
    return (last_key(args, sequence, bottom_query) + kBlockKv) / kBlockKv;
  }
};
