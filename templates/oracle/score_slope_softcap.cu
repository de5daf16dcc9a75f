// The derivative of a score by its scaled product. As 1/cosh²: 1 - tanh² would lose what is left of it.
__device__ __forceinline__ double score_slope(const Arguments& args, double product) {
  const double x = args.softmax_scale * product / args.softcap, e = exp_f64(x < 0 ? x : -x), cosh = (1 + e * e) / (2 * e);
  return e == 0 ? 0 : 1 / (cosh * cosh);
}
constexpr double kSlopeError = 0x1p-16;  // of what kernels lose by their tanh, of 1 - slope, once
