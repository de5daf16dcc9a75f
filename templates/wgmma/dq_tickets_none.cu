// Tiles of keys add to the sums of dQ in no fixed order.
struct DqTickets {
  __device__ __forceinline__ DqTickets(const Arguments&, const KeyTile&) {}
  __device__ __forceinline__ void await(const QueryWalk&, i32 /*head*/, i32 /*block*/) const {}
  __device__ __forceinline__ void pass(const QueryWalk&, i32 /*block*/) const {}
};
