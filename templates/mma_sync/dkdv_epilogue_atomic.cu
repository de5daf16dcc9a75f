//% include mma_sync/key_sums

// ${key_sum_adders} add to the sums of dK and dV in no fixed order.
__device__ __forceinline__ void finish_key_gradients(const Arguments& args, const KeyTile& tile, const WarpPart& part, const KeyGradients& acc) {
  add_key_sums(args, tile, part, acc);
}
