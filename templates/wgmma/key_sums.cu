// The heads of keys are counted through all batch entries, as workspaces have them.
__device__ __forceinline__ i64 key_head(const Arguments& args, const KeyTile& tile) {
  return static_cast<i64>(workspace_batch(tile.sequence)) * (args.heads_q / args.group_size) + TileHeads::of_keys(args, tile.head);
}

// Adds a warp's part of dK or dV to the sums of the heads that share the keys. first_key: of the warp's 16, in the tile.
__device__ __forceinline__ void add_key_sums(float* all_sums, const Arguments& args, const KeyTile& tile, i32 first_key, const GradientFragments& acc) {
  float* const sums = all_sums + sums_place(key_head(args, tile), blocks_of_keys<kBlockKv>(args) * kBlockKv, first_block_of_keys<kBlockKv>(tile.sequence) * kBlockKv + tile.first_key + first_key, 0);
#pragma unroll
  for (i32 n = 0; n < kChunks; ++n) {
    const float fragment[4] = {acc[4 * n], acc[4 * n + 1], acc[4 * n + 2], acc[4 * n + 3]};
    add_sums(sums + n * kSumsOfFragment, fragment);
  }
}
__device__ __forceinline__ void store_dk(const Arguments& args, const KeyTile& tile, i32 first_key, const GradientFragments& dk) {
  add_key_sums(args.d_k_sums, args, tile, first_key, dk);
}
__device__ __forceinline__ void store_dv(const Arguments& args, const KeyTile& tile, i32 first_key, const GradientFragments& dv) {
  add_key_sums(args.d_v_sums, args, tile, first_key, dv);
}
