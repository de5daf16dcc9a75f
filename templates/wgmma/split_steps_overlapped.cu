// A block of queries: S is issued with dV of the block before, so that the exponentials run beside dV. kFirst: there is no block before.
template <bool kFirst>
__device__ __forceinline__ void query_step(ValueGradients& values, i32 block, bool masked) {
  SoftmaxWarpgroup& warpgroup = values.warpgroup;
  warpgroup.wait_q();
  warpgroup.issue_s(values.s);        // Sᵀ = K Qᵀ
  if (!kFirst) values.issue_dv();     // of the block before
  wgmma_wait_group<kFirst ? 0 : 1>();
  wgmma_landed(values.s);
  values.exponentiate_scores(block, masked);
  if (!kFirst) values.finish_dv();
  values.hand_over();
}
__device__ __forceinline__ void end_walk(ValueGradients& values) {
  values.issue_dv();
  values.finish_dv();
}

// The same with dP, dK of the block before, and dS.
template <bool kFirst>
__device__ __forceinline__ void query_step(KeyGradients& keys, i32 /*block*/, bool /*masked*/) {
  SoftmaxWarpgroup& warpgroup = keys.warpgroup;
  warpgroup.wait_do();
  warpgroup.issue_dp(keys.dp);        // dPᵀ = V dOᵀ
  if (!kFirst) keys.issue_dk();       // of the block before
  const DeltaColumns delta(warpgroup.delta());
  wgmma_wait_group<kFirst ? 0 : 1>();
  wgmma_landed(keys.dp);
  keys.differentiate_scores(delta);
  if (!kFirst) keys.finish_dk();
  keys.publish();
}
__device__ __forceinline__ void end_walk(KeyGradients& keys) {
  keys.issue_dk();
  keys.finish_dk();
}
