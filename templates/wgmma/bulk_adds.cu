// A warp's fragments pass through shared memory, from where one lane adds them all. Returns when the bytes of the adds before have been read, so that
// shared memory may be written, or left.
__device__ __forceinline__ void end_bulk_adds() {
  if (lane_index() == 0) cp_async_bulk_wait_group_read<0>();
  bar_warp_sync();
}
// Adds the first `count` of the warp's fragments to sums that follow each other. The warp goes on when their bytes have been stored to shared memory.
template <i32 kCount>
__device__ __forceinline__ void add_in_bulk(const float (&values)[4 * kCount], i32 count, float* sums, u32 part) {
  end_bulk_adds();
#pragma unroll
  for (i32 n = 0; n < kCount; ++n) {
    const Vec4 fragment = {f32_to_bits(values[4 * n]), f32_to_bits(values[4 * n + 1]), f32_to_bits(values[4 * n + 2]), f32_to_bits(values[4 * n + 3])};
    if (n < count) st_shared_v4_b32(part + 4 * n * kSumsOfFragment + 16 * lane_index(), fragment);
  }
  fence_proxy_async();
  bar_warp_sync();
  if (lane_index() == 0) {
    cp_reduce_async_bulk_add_f32(sums, part, 4 * count * kSumsOfFragment);
    cp_async_bulk_commit_group();
  }
}
