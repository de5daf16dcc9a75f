// A block of queries: each product is waited for before the next is issued. kFirst: there is no block before.
template <bool kFirst>
__device__ __forceinline__ void query_step(KeyGradients& keys, i32 block, bool masked) {
  SoftmaxWarpgroup& warpgroup = keys.warpgroup;
  const i32 before = warpgroup.q.stage;
  if (!kFirst) warpgroup.q.advance();
  if (!kFirst) {
    warpgroup.issue_dk(keys.dk, keys.ds, before);              // dK = dK + dSᵀ Q, of the block before
    wgmma_wait_group<0>();
    wgmma_landed(keys.dk);
    warpgroup.release_q(before);
  }
  warpgroup.wait_q();
  warpgroup.wait_order();
  warpgroup.issue_s(keys.s);                                   // Sᵀ = K Qᵀ
//% if early
  const LseColumns lse = keys.read_lse();
//% end
  wgmma_wait_group<0>();
  wgmma_landed(keys.s);
  keys.exponentiate_scores(block, masked${and_lse});
//% if !waits_for_do
  warpgroup.wait_do();
//% end
//% if persistent
  if (kFirst) warpgroup.wait_v();
//% end
  warpgroup.issue_dp(keys.dp);                                 // dPᵀ = V dOᵀ
  warpgroup.pass_order();
//% if early
  const DeltaColumns delta(warpgroup.delta());
//% end
  wgmma_wait_group<0>();
  wgmma_landed(keys.dp);
  keys.differentiate_scores(${delta});
  warpgroup.issue_dv(keys.dv, keys.p);                         // dV = dV + Pᵀ dO
  wgmma_wait_group<0>();
  wgmma_landed(keys.dv);
  warpgroup.release_do();
}
