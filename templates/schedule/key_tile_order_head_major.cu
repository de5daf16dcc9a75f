// CTAs take all tiles of a head, then those of the next.
__device__ __forceinline__ i32 tile_in_order(const Arguments&, i32 number) { return number; }
