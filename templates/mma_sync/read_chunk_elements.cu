// Eight elements of a row that may start anywhere.
__device__ __forceinline__ Vec4 read_chunk(const char* from) {
  u32 pairs[4];
#pragma unroll
  for (i32 i = 0; i < 4; ++i) {
    const u32 low = ld_global_b16(from + 4 * i), high = ld_global_b16(from + 4 * i + 2);
    pairs[i] = low | high << 16;
  }
  return {pairs[0], pairs[1], pairs[2], pairs[3]};
}
