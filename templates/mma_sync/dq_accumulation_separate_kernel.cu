// Another kernel computes dQ.
struct DqAccumulation {
  static constexpr bool kAdded = false;

  __device__ __forceinline__ DqAccumulation(const Arguments&, const Sequence&, i64 /*head*/, i32 /*tile*/, i32 /*warp*/, u32 /*shared*/) {}
  __device__ __forceinline__ void await_ticket(i32 /*block*/) const {}
  __device__ __forceinline__ void add(i32 /*block*/) {}
  __device__ __forceinline__ void pass_ticket() const {}
  __device__ __forceinline__ void finish() const {}
};
