// The heads of keys are counted through all batch entries, as workspaces have them.
__device__ __forceinline__ i64 key_head(const Arguments& args, const KeyTile& tile) {
  return static_cast<i64>(workspace_batch(tile.sequence)) * (args.heads_q / args.group_size) + TileHeads::of_keys(args, tile.head);
}

// Adds a warp's part of dK or dV to the sums of the heads that share the keys.
__device__ __forceinline__ void add_key_sums(float* sums, const WarpPart& part, const GradientFragments& acc) {
#pragma unroll
  for (i32 t = 0; t < kRowTiles; ++t) {
#pragma unroll
    for (i32 n = 0; n < kPartChunks; ++n)
      if (kChunks % kQueryWarps == 0 || part.first_chunk + n >= part.first_stored) add_sums(sums + (t * kChunks + n) * kSumsOfFragment, acc[t][n]);
  }
}

__device__ __forceinline__ void add_key_sums(const Arguments& args, const KeyTile& tile, const WarpPart& part, const KeyGradients& acc) {
  const i64 place = sums_place(key_head(args, tile), blocks_of_keys<kBlockKv>(args) * kBlockKv, first_block_of_keys<kBlockKv>(tile.sequence) * kBlockKv + tile.first_key + part.row, part.first_chunk);
  add_key_sums(args.d_k_sums + place, part, acc.dk);
  add_key_sums(args.d_v_sums + place, part, acc.dv);
}
