// A warpgroup computes S, P, dP, dS, dK and dV of its 64 keys.
//% if dq_by_softmax
//% include wgmma/dq_share
//% end
//% include wgmma/key_gradients
//% include wgmma/query_step_${query_step}
//% include wgmma/end_walk${with_dq}
//% include wgmma/add_key_gradients
