// Blocks of queries that attend to some keys, from first_key on: those of [unmasked_begin, unmasked_end) to all of them, the others of
// [begin, end) in part. May be empty. kMaskRagged: none counts as unmasked where the keys do not fill their tile.
template <bool kMaskRagged>
struct QueryBlocks {
//% if masked_begin
  i32 begin, unmasked_begin, unmasked_end, end;
  i32 all;  // of the sequence
//% else
  i32 begin, unmasked_begin, end, all;  // what attends to a key ends with the last query: end and all are the same
//% end

  __device__ __forceinline__ QueryBlocks(const Arguments& args, const Sequence& sequence, i32 first_key, i32 keys) {
    const i32 last_key = first_key + keys - 1;
    all = (sequence.queries(args) + kBlockQ - 1) / kBlockQ;
//% if masked_begin
    end = (last_query(args, sequence, last_key) + kBlockQ) / kBlockQ;
    // What lies behind the last query needs no mask: its P is 0.
    const i32 last = last_query(args, sequence, first_key);
    unmasked_end = last == sequence.queries(args) - 1 ? all : (last + 1) / kBlockQ;
//% else
    end = all;
//% end
    const i32 first = first_query(args, sequence, first_key), first_of_last = first_query(args, sequence, last_key);
    begin = first < sequence.queries(args) ? first / kBlockQ : end;
    unmasked_begin = kMaskRagged && keys < kBlockKv ? end : (first_of_last + kBlockQ - 1) / kBlockQ;
  }
};
