// Rows of a head lie apart evenly in Q and O.

// Q's tile into shared memory, by all threads of the CTA.
__device__ __forceinline__ void load_query_rows(const Arguments& args, const QueryTile& tile, u32 q_tile) {
  const i64 row_bytes = kElementBytes * args.q_stride_row;
  const char* q =
      row_pointer(args.q, tile.sequence.query_offset(args.q_stride_batch, args.q_stride_row), tile.head * args.q_stride_head, 0) + tile.first_row * row_bytes;
  TileStream<kBlockQ, kEvenTiles, kThreads>(q, row_bytes, tile.rows, thread_index()).load_next(q_tile);
}
//% if !split

// A warp's rows of O out of shared memory.
__device__ __forceinline__ void store_query_rows(const Arguments& args, const QueryTile& tile, u32 o_tile, i32 warp_row) {
  const i64 row_bytes = kElementBytes * args.o_stride_row;
  char* o = const_cast<char*>(row_pointer(args.o, tile.sequence.query_offset(args.o_stride_batch, args.o_stride_row), tile.head * args.o_stride_head, 0));
  store_tile<kWarpRows, kEvenTiles, kWarpSize>(o + (tile.first_row + warp_row) * row_bytes, o_tile + warp_row * kRowBytes, row_bytes,
                                                tile.rows - warp_row, lane_index());
}
//% end
