// Two elements of the problem's type in a register.
__device__ __forceinline__ u32 pack_elements(float low, float high) { return cvt_rn_${dtype}x2_f32(high, low); }
