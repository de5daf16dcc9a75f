//% include mma_sync/key_sums

// The sums of dK and dV grow as the heads of a group come by: in no order.
__device__ __forceinline__ void finish_key_gradients(const Arguments& args, const KeyTile& tile, const WarpPart& part, const KeyGradients& acc) {
  add_key_sums(args, tile, part, acc);
}
