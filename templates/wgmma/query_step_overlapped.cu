// A block of queries. Sᵀ is issued with dK of the block before, so that the exponentials run beside dK; dPᵀ with dV, so that dSᵀ is computed
//% if dq_by_softmax
// beside dV. dQ follows dV: that of the block before, whose dS the other warpgroups have had the time to hand over. kFirst: there is no block before.
//% else
// beside dV. kFirst: there is no block before.
//% end
template <bool kFirst>
__device__ __forceinline__ void query_step(KeyGradients& keys, i32 block, bool masked) {
  SoftmaxWarpgroup& warpgroup = keys.warpgroup;
  const i32 before = warpgroup.q.stage;
  if (!kFirst) warpgroup.q.advance();
  warpgroup.wait_order();
  warpgroup.wait_q();
  warpgroup.issue_s(keys.s);                                   // Sᵀ = K Qᵀ
  if (!kFirst) warpgroup.issue_dk(keys.dk, keys.ds, before);   // dK = dK + dSᵀ Q, of the block before
//% if early
  const LseColumns lse = keys.read_lse();
//% end
  wgmma_wait_group<kFirst ? 0 : 1>();
  wgmma_landed(keys.s);
  keys.exponentiate_scores(block, masked${and_lse});
  if (!kFirst) {
    wgmma_wait_group<0>();
    wgmma_landed(keys.dk);
//% if !waits_for_do
    warpgroup.release_q(before);
//% end
  }
//% if !waits_for_do
  warpgroup.wait_do();
//% end
//% if persistent
  if (kFirst) warpgroup.wait_v();
//% end
  warpgroup.issue_dp(keys.dp);                                 // dPᵀ = V dOᵀ
//% if early
  warpgroup.pass_order();
//% end
  warpgroup.issue_dv(keys.dv, keys.p);                         // dV = dV + Pᵀ dO
//% if !early
  warpgroup.pass_order();
//% end
//% if early
  const DeltaColumns delta(warpgroup.delta());
//% end
//% if waits_for_do
  if (!kFirst) warpgroup.release_q(before);                    // no earlier: persistent CTAs would spill
//% end
  wgmma_wait_group<1>();
  wgmma_landed(keys.dp);
  keys.differentiate_scores(${delta});
//% if dq_by_softmax
  const PipelineSlot<kDsStages> ds = slot_before<2>(warpgroup.ds);
  if (!kFirst) keys.dq.issue(ds);                              // dQᵀ = Kᵀ dSᵀ, of the block before
  wgmma_wait_group<kFirst ? 0 : 1>();
//% else
  wgmma_wait_group<0>();
//% end
  wgmma_landed(keys.dv);
  warpgroup.release_do();
//% if dq_by_softmax
  if (!kFirst) {
    wgmma_wait_group<0>();
    keys.dq.add(ds);
  }
//% end
}
