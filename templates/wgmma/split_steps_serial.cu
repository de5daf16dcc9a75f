// A block of queries: each product is waited for before the next is issued; the two warpgroups run beside each other.
template <bool kFirst>
__device__ __forceinline__ void query_step(ValueGradients& values, i32 block, bool masked) {
  SoftmaxWarpgroup& warpgroup = values.warpgroup;
  warpgroup.wait_q();
  warpgroup.issue_s(values.s);        // Sᵀ = K Qᵀ
  wgmma_wait_group<0>();
  wgmma_landed(values.s);
  values.exponentiate_scores(block, masked);
  values.hand_over();
  values.issue_dv();
  values.finish_dv();
}
__device__ __forceinline__ void end_walk(ValueGradients&) {}

template <bool kFirst>
__device__ __forceinline__ void query_step(KeyGradients& keys, i32 /*block*/, bool /*masked*/) {
  SoftmaxWarpgroup& warpgroup = keys.warpgroup;
  warpgroup.wait_do();
  warpgroup.issue_dp(keys.dp);        // dPᵀ = V dOᵀ
  const DeltaColumns delta(warpgroup.delta());
  wgmma_wait_group<0>();
  wgmma_landed(keys.dp);
  keys.differentiate_scores(delta);
//% if dk_first
  keys.pack();
  keys.issue_dk();
  keys.publish();
//% else
  keys.publish();
  keys.issue_dk();
//% end
  keys.finish_dk();
}
__device__ __forceinline__ void end_walk(KeyGradients&) {}
