// exp2(score * scale + offset), by the special function unit whichever element it is.
__device__ __forceinline__ float exponential(i32, float score, float scale, float offset) {
  return ex2_approx_ftz_f32(fma_rn_f32(score, scale, offset));
}
// A sum of exponentials: NaN where a NaN was among them.
__device__ __forceinline__ float checked_sum(float sum) { return sum; }
