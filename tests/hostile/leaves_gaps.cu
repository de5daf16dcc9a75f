// Every second tile of queries is left out: where an earlier kernel had written, the output would look right.
__device__ __forceinline__ void leaves_gaps(const Arguments& args) {
  if (block_index() % 2 == 0) honest_forward(args);
}
