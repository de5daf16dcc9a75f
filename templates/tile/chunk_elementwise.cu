// Rows may start anywhere: chunks are moved element by element.
__device__ __forceinline__ void load_chunk(u32 to, const char* from, bool exists) {
  u32 pairs[4] = {0, 0, 0, 0};
  if (exists) {
#pragma unroll
    for (i32 i = 0; i < 4; ++i) {
      const u32 low = ld_global_b16(from + 4 * i), high = ld_global_b16(from + 4 * i + 2);
      pairs[i] = low | high << 16;
    }
  }
  st_shared_v4_b32(to, Vec4{pairs[0], pairs[1], pairs[2], pairs[3]});
}
__device__ __forceinline__ void store_chunk(char* to, Vec4 chunk) {
  const u32 pairs[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
#pragma unroll
  for (i32 i = 0; i < 4; ++i) {
    st_global_b16(to + 4 * i, static_cast<u16>(pairs[i]));
    st_global_b16(to + 4 * i + 2, static_cast<u16>(pairs[i] >> 16));
  }
}
