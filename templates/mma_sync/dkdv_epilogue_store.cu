// dK and dV leave through the tiles of K and V, which all warps have read, so that global stores are whole chunks of a row.
__device__ __forceinline__ void finish_key_gradients(const Arguments& args, const KeyTile& tile, const WarpPart& part, const KeyGradients& acc) {
  const u32 shared = shared_base();
  put_gradient(shared + kKOffset, part.row, part.first_chunk, part.first_stored, ${dk_scale}, acc.dk);
  put_gradient(shared + kVOffset, part.row, part.first_chunk, part.first_stored, ${dv_scale}, acc.dv);
  bar_sync();
  const i32 worker = opaque_i32(thread_index());
  const i64 dk_row_bytes = kElementBytes * args.d_k_stride_row, dv_row_bytes = kElementBytes * args.d_v_stride_row;
  char* d_k = const_cast<char*>(row_pointer(args.d_k, tile.sequence.key_offset(args.d_k_stride_batch, args.d_k_stride_row), tile.head * args.d_k_stride_head, 0));
  char* d_v = const_cast<char*>(row_pointer(args.d_v, tile.sequence.key_offset(args.d_v_stride_batch, args.d_v_stride_row), tile.head * args.d_v_stride_head, 0));
  store_tile<kBlockKv, false, kThreads>(d_k + tile.first_key * dk_row_bytes, shared + kKOffset, dk_row_bytes, tile.rows(args), worker);
  store_tile<kBlockKv, false, kThreads>(d_v + tile.first_key * dv_row_bytes, shared + kVOffset, dv_row_bytes, tile.rows(args), worker);
}
