  // Each lane adds its accumulators, four at a time.
  __device__ __forceinline__ void add_fragments() const {
#pragma unroll
    for (i32 n = 0; n < kDqQueries / 8; ++n) {
      const float fragment[4] = {dq[4 * n], dq[4 * n + 1], dq[4 * n + 2], dq[4 * n + 3]};
      add_sums(sums + n * kSumsOfFragment, fragment);
    }
  }
  __device__ __forceinline__ void end_adds() const {}
