//% if dq_by_softmax
// A block of queries. dK of the block before and Sᵀ follow each other without a pause, and so do dPᵀ, dV and dQ of the block before, beside which dSᵀ
// is computed. kFirst: there is no block before.
//% else
// A block of queries. dK of the block before and Sᵀ follow each other without a pause, and so do dPᵀ and dV, beside which dSᵀ is computed. kFirst:
// there is no block before.
//% end
template <bool kFirst>
__device__ __forceinline__ void query_step(KeyGradients& keys, i32 block, bool masked) {
  SoftmaxWarpgroup& warpgroup = keys.warpgroup;
  const i32 before = warpgroup.q.stage;
  if (!kFirst) warpgroup.q.advance();
  warpgroup.wait_order();
  warpgroup.wait_q();
  if (!kFirst) warpgroup.issue_dk(keys.dk, keys.ds, before);   // dK = dK + dSᵀ Q, of the block before
  warpgroup.issue_s(keys.s);                                   // Sᵀ = K Qᵀ
//% if early
  const LseColumns lse = keys.read_lse();
//% end
  if (!kFirst) {
    wgmma_wait_group<1>();
    wgmma_landed(keys.dk);
    warpgroup.release_q(before);
  }
  wgmma_wait_group<0>();
  wgmma_landed(keys.s);
  keys.exponentiate_scores(block, masked${and_lse});
//% if dq_by_softmax
  const PipelineSlot<kDsStages> ds = slot_before<1>(warpgroup.ds);
//% end
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
//% if dq_by_softmax
  if (!kFirst) keys.dq.issue(ds);                              // dQᵀ = Kᵀ dSᵀ, of the block before
//% end
//% if !early
  warpgroup.pass_order();
//% end
//% if early
  const DeltaColumns delta(warpgroup.delta());
//% end
//% if dq_by_softmax
  wgmma_wait_group<kFirst ? 1 : 2>();
//% else
  wgmma_wait_group<1>();
//% end
  wgmma_landed(keys.dp);
  keys.differentiate_scores(${delta});
//% if dq_by_softmax
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
