//% include mma_sync/query_product

// Tiles of keys add to the sums of dQ in no fixed order.
struct DqAccumulation {
  static constexpr bool kAdded = true;
  QueryProduct product;

  // head is the query head, counted as workspaces have them.
  __device__ __forceinline__ DqAccumulation(const Arguments& args, const Sequence& sequence, i64 head, i32 /*tile*/, i32 warp, u32 shared) : product(args, head, first_block_of_queries<kBlockQ>(sequence), warp, shared) {}
  __device__ __forceinline__ void await_ticket(i32 /*block*/) const {}
  __device__ __forceinline__ void add(i32 block) { product.add(block); }
  __device__ __forceinline__ void pass_ticket() const {}
  __device__ __forceinline__ void finish() const {}
};
