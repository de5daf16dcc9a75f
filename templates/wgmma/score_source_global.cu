// Computes the scores of an unmasked block of keys for a warp's rows from device memory, after those that wgmma computed have been overwritten. Its
// loops keep nothing alive, since a rare path must not cost the common one registers.
struct ScoreSource {
  const Arguments& args;
  i32 tile_number;
  i32 row, block;  // this thread's first row, in the sequence

  __device__ __forceinline__ void load(ScoreFragments& s) const {
    const QueryTile tile(args, opaque_i32(tile_number));
    if (lane_index() == 0 && args.recomputed_blocks != nullptr) atom_relaxed_gpu_global_add_u32(args.recomputed_blocks, 1);
#pragma unroll 1
    for (i32 i = 0; i < kBlockKv / 2; ++i) {
      const i32 query = row + i / 2 % 2 * 8, key = block * kBlockKv + i / 4 * 8 + static_cast<i32>(lane_index() % 4 * 2) + i % 2;
      const i32 head = tile.head_of(query), last = query_count(args, tile.sequence) - 1;
      const i32 position = QueryTile::position_of(query) < last ? QueryTile::position_of(query) : last;
      const char* q =
          static_cast<const char*>(args.q) + 2 * (tile.sequence.query_offset(args.q_stride_batch, args.q_stride_row) + head * args.q_stride_head + position * args.q_stride_row);
      const char* k =
          static_cast<const char*>(args.k) + 2 * (tile.sequence.key_offset(args.k_stride_batch, args.k_stride_row) + tile.head_kv * args.k_stride_head + key * args.k_stride_row);
      double score = 0;
#pragma unroll 1
      for (i32 e = 0; e < kHeadDim; ++e)
        score = fma_rn_f64(cvt_f64_${dtype}(ld_global_b16(q + 2 * e)), cvt_f64_${dtype}(ld_global_b16(k + 2 * e)), score);
#pragma unroll
      for (i32 e = 0; e < kBlockKv / 2; ++e)
        if (e == i) s[e] = static_cast<float>(score);
    }
    ScoreFunction().modify(s);
  }
};
