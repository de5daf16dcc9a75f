__device__ __forceinline__ double scaled_score(const Arguments& args, double product) { return args.softmax_scale * product; }
