__device__ __forceinline__ char* row_pointer(const void* tensor, i64 batch_offset, i64 head_offset, i64 row_offset) {
  return const_cast<char*>(static_cast<const char*>(tensor)) + kElementBytes * (batch_offset + head_offset + row_offset);
}
