// A block of queries that attends to none of the warpgroup's keys: its dS is 0, and the others count on the stages. A buffer is released only
// after all lanes have seen it full; bar_warp_sync says so where no product holds the warp together.
__device__ __forceinline__ void skip_block(SoftmaxWarpgroup& warpgroup, bool publishes) {
  warpgroup.wait_order();
  warpgroup.pass_order();
  warpgroup.wait_q();
  warpgroup.wait_do();
  bar_warp_sync();
  warpgroup.release_q(warpgroup.q.stage);
  warpgroup.release_do();
  warpgroup.q.advance();
  const PackedScores zeros = {};
  if (publishes) warpgroup.publish(zeros);
}
//% if persistent
//% if !split

// A tile whose keys no query attends to: its operands come all the same.
__device__ __forceinline__ void pass_tile_over(SoftmaxWarpgroup& warpgroup) {
  warpgroup.wait_k();
  warpgroup.wait_v();
  warpgroup.leave_operands();
//% if dq_by_softmax
  warpgroup.leave_k();
//% end
}
//% end
//% end
