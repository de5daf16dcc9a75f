// When all blocks of a head have been seen: dK of the last one.
__device__ __forceinline__ void end_walk(KeyGradients& keys) {
  keys.warpgroup.issue_dk(keys.dk, keys.ds, keys.warpgroup.q.stage);  // dK = dK + dSᵀ Q
  wgmma_wait_group<0>();
  wgmma_landed(keys.dk);
  keys.release_last_q();
}
