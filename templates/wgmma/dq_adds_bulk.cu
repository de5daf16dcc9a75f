  // A warp's part of the buffer is free again when the block before's has been read.
  __device__ __forceinline__ void add_fragments() const {
    add_in_bulk<kDqQueries / 8>(dq, kDqQueries / 8, sums, shared + kDqOffset + 4 * transposed_fragment_place<kBlockQ>(sixteen_dims, first_query / 8));
  }
  __device__ __forceinline__ void end_adds() const { end_bulk_adds(); }
