//% include mma_sync/query_product

// Tiles of keys add to the sums of dQ in no fixed order.
struct DqAccumulation {
  static constexpr bool kAdded = true;
  QueryProduct product;

  // head is the query head, counted through all batch entries.
  __device__ __forceinline__ DqAccumulation(const Arguments& args, const Sequence&, i64 head, i32 /*tile*/, i32 warp, u32 shared) : product(args, head, warp, shared) {}
  __device__ __forceinline__ void await_ticket(i32 /*block*/) const {}
  __device__ __forceinline__ void add(i32 block) { product.add(block); }
  __device__ __forceinline__ void pass_ticket() const {}
  __device__ __forceinline__ void finish() const {}
};
