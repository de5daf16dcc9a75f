constexpr i32 kTileRows = kBlockQ, kChunksAtOnce = 4, kParts = (kChunks + kChunksAtOnce - 1) / kChunksAtOnce;

// Sums that other CTAs of this kernel have added to.
__device__ __forceinline__ Vec4F32 load_added_sums(const float* sums) { return ld_weak_global_v4_f32(sums + 4 * lane_index()); }

//% include tile/chunk_async
//% include tile/convert_sums

// The tile that adds last to the sums of a query head converts them, while they are in L2. To be called by warpgroup 0, which adds, when it has issued
// all of a tile.
__device__ __forceinline__ void convert_finished_heads(const Arguments& args, const KeyTile& tile, u32 shared) {
  fence_acq_rel_gpu();
  bar_sync_named(kTickets, kWarpgroup);
  for (i32 walked = 0; walked < TileHeads::walked(args); ++walked) {
    const i32 head = TileHeads::of_queries(args, tile.head, walked);
    const i64 of_all = static_cast<i64>(workspace_batch(tile.sequence)) * args.heads_q + head;
    if (thread_index() == 0) st_shared_b32(shared + kFinishedOffset, atom_acq_rel_gpu_global_add_u32(args.finished_tiles + of_all, 1));
    bar_sync_named(kTickets, kWarpgroup);
    const bool last = static_cast<i32>(ld_shared_b32(shared + kFinishedOffset)) == args.key_tiles * ${finishing_tiles} - 1;
    bar_sync_named(kTickets, kWarpgroup);
    if (!last) continue;
    char* const d_q = static_cast<char*>(args.d_q) + kElementBytes * (tile.sequence.query_offset(args.d_q_stride_batch, args.d_q_stride_row) + head * args.d_q_stride_head);
    convert(args.d_q_sums, ${dq_scale}, d_q, kElementBytes * args.d_q_stride_row, of_all, 0, stored_queries(args, tile.sequence), 0, blocks_of_queries<kBlockQ>(args));
  }
}
