// When all blocks of a head have been seen: dK and dQ of the last one.
__device__ __forceinline__ void end_walk(KeyGradients& keys) {
  const PipelineSlot<kDsStages> ds = slot_before<1>(keys.warpgroup.ds);
  keys.warpgroup.issue_dk(keys.dk, keys.ds, keys.warpgroup.q.stage);  // dK = dK + dSᵀ Q
  keys.dq.issue(ds);                                                  // dQᵀ = Kᵀ dSᵀ
  wgmma_wait_group<0>();
  wgmma_landed(keys.dk);
  keys.release_last_q();
  keys.dq.add(ds);
}

// A block that attends to none of the warpgroup's keys, and the warpgroup's share of its dQ, to which other keys contribute.
__device__ __forceinline__ void skip_block(KeyGradients& keys) {
  skip_block(keys.warpgroup, true);
  const PipelineSlot<kDsStages> ds = slot_before<1>(keys.warpgroup.ds);
  keys.dq.issue(ds);
  wgmma_wait_group<0>();
  keys.dq.add(ds);
}
