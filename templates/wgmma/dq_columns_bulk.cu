constexpr u32 kDqWarpBytes = 4 * 16 * kDqColumns;  // of a warp's columns of a product

// Adds to the sums of the warp's 16 queries; last: whether these are the last columns, of which fewer may exist. Accumulators are free at once, and the
// adds of one product run beside the next.
__device__ __forceinline__ void add_dq(const DqFragments& dq, float* sums, bool last, u32 shared) {
  add_in_bulk<kDqColumns / 8>(dq, (last ? kDqLastColumns : kDqColumns) / 8, sums, shared + kDqOffset + warp_index() * kDqWarpBytes);
}
__device__ __forceinline__ void end_dq_adds() { end_bulk_adds(); }
