// What remains of the block before: dV, dSᵀ beside it, dK.
__device__ __forceinline__ void issue_gradients(KeyGradients& keys) {
  keys.warpgroup.wait_between();
  keys.warpgroup.issue_dv(keys.dv, keys.p);                          // dV = dV + Pᵀ dO
  keys.warpgroup.pass_between();
  keys.differentiate_scores();
  keys.warpgroup.issue_dk(keys.dk, keys.ds, keys.warpgroup.q.stage); // dK = dK + dSᵀ Q
}

// The end of a block and the beginning of the next: Sᵀ is issued behind dV and dK of the block before, as soon as dV has left Pᵀ's registers, and
// dPᵀ as soon as dK has left those of dSᵀ, so that the tensor cores go on without a pause; the exponentials run beside dPᵀ. kFirst: there is no block
// before.
template <bool kFirst>
__device__ __forceinline__ void query_step(KeyGradients& keys, i32 block, bool masked) {
  SoftmaxWarpgroup& warpgroup = keys.warpgroup;
  const i32 before = warpgroup.q.stage;
  if (!kFirst) {
    issue_gradients(keys);
    wgmma_wait_group<1>();
    wgmma_landed(keys.dv);
    warpgroup.release_do();
    warpgroup.q.advance();
  }
  warpgroup.wait_order();
  warpgroup.wait_q();
  warpgroup.issue_s(keys.s);                                         // Sᵀ = K Qᵀ
  if (!kFirst) {
    wgmma_wait_group<1>();
    wgmma_landed(keys.dk);
    warpgroup.release_q(before);
  }
  warpgroup.wait_do();
  warpgroup.issue_dp(keys.dp);                                       // dPᵀ = V dOᵀ
  warpgroup.pass_order();
  wgmma_wait_group<1>();
  wgmma_landed(keys.s);
  keys.exponentiate_scores(block, masked);
  wgmma_wait_group<0>();
  wgmma_landed(keys.dp);
}
