// When all blocks of a head have been seen: dV and dK of the last one.
__device__ __forceinline__ void end_walk(KeyGradients& keys) {
  issue_gradients(keys);
  wgmma_wait_group<0>();
  wgmma_landed(keys.dv);
  wgmma_landed(keys.dk);
  keys.warpgroup.release_do();
  keys.release_last_q();
}
