// Every query of a sequence attends to every key.
__device__ __forceinline__ i32 last_key(const Arguments& args, const Sequence& sequence, i32 /*query*/) { return key_count(args, sequence) - 1; }
__device__ __forceinline__ i32 first_query(const Arguments&, const Sequence&, i32 /*key*/) { return 0; }

//% include attention/hidden_keys
