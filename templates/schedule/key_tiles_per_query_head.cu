// Every query head has tiles of keys of its own.
struct TileHeads {
  __device__ __forceinline__ static i32 count(const Arguments& args) { return args.heads_q; }  // of a batch entry
  __device__ __forceinline__ static i32 of_keys(const Arguments& args, i32 head) { return head / args.group_size; }
  __device__ __forceinline__ static i32 of_queries(const Arguments&, i32 head, i32 /*member*/) { return head; }
  __device__ __forceinline__ static i32 walked(const Arguments&) { return 1; }
};
