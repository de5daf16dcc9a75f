// Eight elements of a row that starts at a multiple of 16 bytes.
__device__ __forceinline__ Vec4 read_chunk(const char* from) { return ld_global_v4_b32(from); }
