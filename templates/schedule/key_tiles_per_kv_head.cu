// Every key/value head has tiles of keys of its own. A CTA walks through the query heads that share them.
struct TileHeads {
  __device__ __forceinline__ static i32 count(const Arguments& args) { return args.heads_q / args.group_size; }  // of a batch entry
  __device__ __forceinline__ static i32 of_keys(const Arguments&, i32 head) { return head; }
  __device__ __forceinline__ static i32 of_queries(const Arguments& args, i32 head, i32 member) { return head * args.group_size + member; }
  __device__ __forceinline__ static i32 walked(const Arguments& args) { return args.group_size; }
};
