// CTAs take tiles in the order of their numbers.
__device__ __forceinline__ i32 take_tile_id(const Arguments&, u32 /*shared*/) { return static_cast<i32>(block_index()); }
