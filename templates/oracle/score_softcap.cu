__device__ __forceinline__ double scaled_score(const Arguments& args, double product) {
  return args.softcap * tanh_f64(args.softmax_scale * product / args.softcap);
}
