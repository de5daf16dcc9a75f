// The number of a CTA's tile among those of all heads: the CTA's own.
__device__ __forceinline__ i32 take_key_tile(const Arguments&, u32 /*shared*/) { return static_cast<i32>(block_index()); }

__device__ __forceinline__ i32 tile_in_head(i32 number, i32 tiles) { return number % tiles; }
