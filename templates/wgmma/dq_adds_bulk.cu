  // The fragments of a warp pass through shared memory, from where one lane adds them all: the warp goes on when the bytes have been stored. Its part
  // of the buffer is free again when the block before's have been read.
  __device__ __forceinline__ void add_fragments() const {
    const u32 part = shared + kDqOffset + 4 * transposed_fragment_place<kBlockQ>(sixteen_dims, first_query / 8);
    end_adds();
#pragma unroll
    for (i32 n = 0; n < kDqQueries / 8; ++n) {
      const Vec4 fragment = {f32_to_bits(dq[4 * n]), f32_to_bits(dq[4 * n + 1]), f32_to_bits(dq[4 * n + 2]), f32_to_bits(dq[4 * n + 3])};
      st_shared_v4_b32(part + 4 * n * kSumsOfFragment + 16 * lane_index(), fragment);
    }
    fence_proxy_async();
    bar_warp_sync();
    if (lane_index() == 0) {
      cp_reduce_async_bulk_add_f32(sums, part, 4 * kDqQueries / 8 * kSumsOfFragment);
      cp_async_bulk_commit_group();
    }
  }
  // Shared memory stays until all adds have read it.
  __device__ __forceinline__ void end_adds() const {
    if (lane_index() == 0) cp_async_bulk_wait_group_read<0>();
    bar_warp_sync();
  }
