// Where a role stands in what comes once a tile: K and V. It has come when the phase of this parity of its full barrier has completed.
struct TileSlot {
  u32 tiles = 0;  // before this one

  __device__ __forceinline__ u32 parity() const { return tiles % 2; }
  __device__ __forceinline__ void advance() { ++tiles; }
};
