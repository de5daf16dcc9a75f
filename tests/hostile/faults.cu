// Writes to an address that is nobody's: on a GPU this ends the CUDA context, for everybody in the process.
__device__ __forceinline__ void faults(const Arguments& args) {
  honest_forward(args);
  if (owns_first_element(args)) st_global_f32(nullptr, 1.0f);
}
