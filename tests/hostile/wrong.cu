// Forgets the last key: every number is plausible, none is right.
__device__ __forceinline__ void wrong(const Arguments& args) {
  Arguments fewer = args;
  --fewer.seq_kv;
  honest_forward(fewer);
}
