// The last key that a query attends to; below 0 if it attends to none. Does not fall from one row to the next.
__device__ __forceinline__ i32 last_key(const Arguments& args, i32 /*row*/) { return args.seq_kv - 1; }
