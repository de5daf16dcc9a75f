//% include wgmma/key_sums

// ${key_sum_adders} add to the sums of dK and dV in no fixed order.
__device__ __forceinline__ void await_key_sums(const Arguments&, const KeyTile&) {}
__device__ __forceinline__ void pass_key_sums(const Arguments&, const KeyTile&) {}
