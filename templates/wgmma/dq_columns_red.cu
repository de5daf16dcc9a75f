// Each lane adds its accumulators, four at a time, to the sums of the warp's 16 queries; last: whether these are the last columns, of which fewer may
// exist.
__device__ __forceinline__ void add_dq(const DqFragments& dq, float* sums, bool last, u32 /*shared*/) {
#pragma unroll
  for (i32 n = 0; n < kDqColumns / 8; ++n) {
    const float fragment[4] = {dq[4 * n], dq[4 * n + 1], dq[4 * n + 2], dq[4 * n + 3]};
    if (n < kDqLastColumns / 8 || !last) add_sums(sums + n * kSumsOfFragment, fragment);
  }
}
__device__ __forceinline__ void end_dq_adds() {}
