// dS of a block is the bias's gradient of its pairs. It goes from shared memory to that tensor: by TMA, which a lane of a warp that loads nothing asks for,
// where a tensor map describes the tensor, and by all four warps elsewhere.
constexpr i32 kStoringWarp = 3;

__device__ __forceinline__ void store_bias_gradient(const Arguments& args, const KeyTile& tile, i32 head, i32 first_query, u32 ds, i32 warp) {
  static_assert(kBlockKv % kPanelColumns == 0);
  if (args.d_bias_by_map) {
    if (warp == kStoringWarp && lane_index() == 0) {
#pragma unroll
      for (i32 panel = 0; panel < kBlockKv / kPanelColumns; ++panel)
        if (panel * kPanelColumns < tile.keys)
          cp_async_bulk_tensor_4d_store(args.d_bias_map, ds + panel * kQPanelStride, tile.first_key + panel * kPanelColumns, head, first_query, tile.sequence.batch);
      cp_async_bulk_commit_group();
    }
    return;
  }
  // Computed anew for each block: registers are short, and what is kept from one to the next would be spilled.
  first_query = opaque_i32(first_query);
  head = opaque_i32(head);
  const i32 left = stored_queries(args) - first_query, rows = left < kBlockQ ? left : kBlockQ;
  char* const block = static_cast<char*>(args.d_bias) +
                      kElementBytes * (opaque_i32(tile.sequence.batch) * args.d_bias_stride_batch + head * args.d_bias_stride_head + first_query * args.d_bias_stride_row + tile.first_key);
#pragma unroll 1
  for (i32 row = warp; row < rows; row += kWarpgroupWarps) {
    char* const to = block + kElementBytes * (row * args.d_bias_stride_row);
#pragma unroll 1
    for (i32 key = 2 * static_cast<i32>(lane_index()); key < tile.keys; key += 2 * kWarpSize) {
      const u32 byte = kElementBytes * key, pair = ld_shared_b32(swizzled(ds + byte / kPanelBytes * kQPanelStride + row * kPanelBytes + byte % kPanelBytes));
      st_global_b16(to + byte, static_cast<u16>(pair));
      if (key + 1 < tile.keys) st_global_b16(to + byte + kElementBytes, static_cast<u16>(pair >> 16));
    }
  }
}
// Until shared memory has been read.
__device__ __forceinline__ void await_stored_bias_gradient(i32 warp) {
  if (warp == kStoringWarp && lane_index() == 0) cp_async_bulk_wait_group_read<0>();
  bar_warp_sync();
}
