//% include wgmma/key_sums

// The heads of a group add to the sums of dK and dV in no fixed order.
__device__ __forceinline__ void await_key_sums(const Arguments&, const KeyTile&) {}
__device__ __forceinline__ void pass_key_sums(const Arguments&, const KeyTile&) {}
