// The blocks of keys [begin, end) that some of the queries from top_query to bottom_query attend to. All of these queries attend to all keys of
//% if short_sequences
// the blocks [unmasked_begin, unmasked_end); of none where some of the queries are behind the last one, which attend to nothing.
//% else
// the blocks [unmasked_begin, unmasked_end).
//% end
struct KeyBlocks {
//% if masked_begin
  i32 begin, unmasked_begin, unmasked_end, end;
//% else
//% include attention/first_blocks_${first_blocks}
  i32 unmasked_end, end;
//% end

//% if diagonal_blocks
  // Where none of the queries sees beyond its diagonal: other blocks are masked, whether they hide a key or not.
  __device__ __forceinline__ static i32 before_diagonals(const Arguments& args, const Sequence& sequence, i32 top_query, i32 end) {
    const i32 keys = alibi_diagonal(args, sequence, top_query) + 1;
    const i32 blocks = keys < 0 ? 0 : keys / kBlockKv;
    return blocks < end ? blocks : end;
  }

//% end
//% if whole_blocks
  // The end of the blocks that all of these queries see whole, on either side of their diagonals.
  __device__ __forceinline__ static i32 whole_end_of(const Arguments& args, const Sequence& sequence, i32 top_query, i32 bottom_query) {
//% if short_sequences
    if (is_outside(args, sequence, top_query) || is_outside(args, sequence, bottom_query)) return 0;
//% end
    return (last_key(args, sequence, top_query) + 1) / kBlockKv;
  }

//% end
  KeyBlocks() = default;
  __device__ __forceinline__ KeyBlocks(const Arguments& args, const Sequence& sequence, i32 top_query, i32 bottom_query) {
//% if masked_begin
    begin = begin_of(args, sequence, top_query);
    unmasked_begin = unmasked_begin_of(args, sequence, top_query, bottom_query);
//% end
    unmasked_end = unmasked_end_of(args, sequence, top_query, bottom_query);
    end = end_of(args, sequence, top_query, bottom_query);
  }

//% if short_sequences
  // Where the top query is behind the last one, so are all, and there is no block.
//% if masked_begin
  __device__ __forceinline__ static i32 begin_of(const Arguments& args, const Sequence& sequence, i32 top_query) {
    return is_outside(args, sequence, top_query) ? 0 : first_key(args, sequence, top_query) / kBlockKv;
  }
  __device__ __forceinline__ static i32 unmasked_begin_of(const Arguments& args, const Sequence& sequence, i32 top_query, i32 bottom_query) {
    if (is_outside(args, sequence, top_query)) return 0;
    return (first_key(args, sequence, last_inside(args, sequence, bottom_query)) + kBlockKv - 1) / kBlockKv;
  }
//% end
  __device__ __forceinline__ static i32 unmasked_end_of(const Arguments& args, const Sequence& sequence, i32 top_query, i32 bottom_query) {
    if (is_outside(args, sequence, top_query) || is_outside(args, sequence, bottom_query)) return 0;
//% if diagonal_blocks
    return before_diagonals(args, sequence, top_query, (last_key(args, sequence, top_query) + 1) / kBlockKv);
//% else
    return (last_key(args, sequence, top_query) + 1) / kBlockKv;
//% end
  }
  __device__ __forceinline__ static i32 end_of(const Arguments& args, const Sequence& sequence, i32 top_query, i32 bottom_query) {
    if (is_outside(args, sequence, top_query)) return 0;
    return (last_key(args, sequence, last_inside(args, sequence, bottom_query)) + kBlockKv) / kBlockKv;
  }
//% else
//% if masked_begin
  __device__ __forceinline__ static i32 begin_of(const Arguments& args, const Sequence& sequence, i32 top_query) {
    return first_key(args, sequence, top_query) / kBlockKv;
  }
  __device__ __forceinline__ static i32 unmasked_begin_of(const Arguments& args, const Sequence& sequence, i32 /*top_query*/, i32 bottom_query) {
    return (first_key(args, sequence, bottom_query) + kBlockKv - 1) / kBlockKv;
  }
//% end
  __device__ __forceinline__ static i32 unmasked_end_of(const Arguments& args, const Sequence& sequence, i32 top_query, i32 /*bottom_query*/) {
//% if diagonal_blocks
    return before_diagonals(args, sequence, top_query, (last_key(args, sequence, top_query) + 1) / kBlockKv);
//% else
    return (last_key(args, sequence, top_query) + 1) / kBlockKv;
//% end
  }
  __device__ __forceinline__ static i32 end_of(const Arguments& args, const Sequence& sequence, i32 /*top_query*/, i32 bottom_query) {
    return (last_key(args, sequence, bottom_query) + kBlockKv) / kBlockKv;
  }
//% end
};
