// A warpgroup computes S, P, dP, dS, dK and dV of its 64 keys.
//% include wgmma/key_gradients
//% include wgmma/query_step_${query_step}
//% include wgmma/end_walk
//% include wgmma/add_key_gradients
