// Rows of a group's heads in turn: where a row of the tile lies in Q and O hangs on its position and its head.
__device__ __forceinline__ i64 place_of_row(const QueryTile& tile, i32 row, i64 stride_batch, i64 stride_head, i64 stride_row) {
  const i32 i = tile.first_row + row;
  return kElementBytes * (tile.sequence.query_offset(stride_batch, stride_row) + tile.head_of(i) * stride_head + QueryTile::position_of(i) * stride_row);
}

// Q's tile into shared memory, by all threads of the CTA.
__device__ __forceinline__ void load_query_rows(const Arguments& args, const QueryTile& tile, u32 q_tile) {
  using Chunks = ThreadChunks<kBlockQ, kThreads>;
  const Chunks chunks{static_cast<i32>(thread_index())};
#pragma unroll
  for (i32 n = 0; n < Chunks::kSteps; ++n) {
    const i32 row = chunks.row(n), chunk = chunks.chunk(n);
    if (!Chunks::kExact && row >= kBlockQ) break;
    const bool exists = kEvenTiles || row < tile.rows;
    const char* const q = static_cast<const char*>(args.q) + (exists ? place_of_row(tile, row, args.q_stride_batch, args.q_stride_head, args.q_stride_row) : 0);
    load_chunk(q_tile + tile_offset(row, chunk), q + chunk * 16, exists);
  }
}
//% if !split

// A warp's rows of O out of shared memory.
__device__ __forceinline__ void store_query_rows(const Arguments& args, const QueryTile& tile, u32 o_tile, i32 warp_row) {
  using Chunks = ThreadChunks<kWarpRows, kWarpSize>;
  const Chunks chunks{static_cast<i32>(lane_index())};
#pragma unroll
  for (i32 n = 0; n < Chunks::kSteps; ++n) {
    const i32 row = warp_row + chunks.row(n), chunk = chunks.chunk(n);
    if (!Chunks::kExact && chunks.row(n) >= kWarpRows) break;
    if (!kEvenTiles && row >= tile.rows) continue;
    char* const o = static_cast<char*>(args.o) + place_of_row(tile, row, args.o_stride_batch, args.o_stride_head, args.o_stride_row);
    store_chunk(o + chunk * 16, ld_shared_v4_b32(o_tile + tile_offset(row, chunk)));
  }
}
//% end
