// The blocks of queries [begin, end) that attend to some of the keys from first_key on. Those of [unmasked_begin, unmasked_end) attend to all of
// these keys. Either range may be empty. With kMaskRagged, no block counts as unmasked where the keys do not fill their tile.
template <bool kMaskRagged>
struct QueryBlocks {
//% if masked_begin
  i32 begin, unmasked_begin, unmasked_end, end;
  i32 all;  // of a head in workspaces
//% else
//% if query_parts
  i32 begin, unmasked_begin, end, all;  // what attends to a key ends with the last query, but not its first parts
//% else
//% if short_sequences
  i32 begin, unmasked_begin, end, all;  // what attends to a key ends with the last query; all: of a head in workspaces
//% else
  i32 begin, unmasked_begin, end, all;  // what attends to a key ends with the last query: end and all are the same
//% end
//% end
//% end

  __device__ __forceinline__ QueryBlocks(const Arguments& args, const Sequence& sequence, i32 first_key, i32 keys) {
    const i32 last_key = first_key + keys - 1;
//% if short_sequences
    const i32 existing = (query_count(args, sequence) + kBlockQ - 1) / kBlockQ;
    all = blocks_of_queries<kBlockQ>(args);
//% else
    all = (query_count(args, sequence) + kBlockQ - 1) / kBlockQ;
    const i32 existing = all;
//% end
//% if masked_begin
    end = (last_query(args, sequence, last_key) + kBlockQ) / kBlockQ;
    // Rows behind the last query need no mask: their P is 0.
    const i32 last = last_query(args, sequence, first_key);
    unmasked_end = last == query_count(args, sequence) - 1 ? existing : (last + 1) / kBlockQ;
//% else
    end = existing;
//% end
    const i32 first = first_query(args, sequence, first_key), first_of_last = first_query(args, sequence, last_key);
    begin = first < query_count(args, sequence) ? first / kBlockQ : end;
//% if short_sequences
    if (keys <= 0) begin = end;
//% end
    unmasked_begin = kMaskRagged && keys < ${tile_keys} ? end : (first_of_last + kBlockQ - 1) / kBlockQ;
  }
};
