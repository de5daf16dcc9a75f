// Operands of wgmma in shared memory: tiles of kPanels panels, each of kPanelColumns columns (a row has kPanelBytes, the span of the swizzle)
// and all rows of the tile. A descriptor counts in units of 16 bytes.
constexpr u64 kSwizzleMode = ${swizzle_mode};
constexpr u32 kGroupBytes = 8 * kPanelBytes;  // of eight rows, the period of the swizzle

__device__ __forceinline__ u64 matrix_descriptor(u32 address, u32 panel_stride) {
  return static_cast<u64>((address & 0x3ffff) >> 4) | static_cast<u64>(panel_stride >> 4) << 16 | static_cast<u64>(kGroupBytes >> 4) << 32 |
         kSwizzleMode << 62;
}
// How far step k of 16 columns lies from the first one, for a tile whose panels are panel_stride bytes apart.
__device__ __forceinline__ u64 column_step(i32 k, u32 panel_stride) {
  constexpr i32 kStepsOfPanel = kPanelColumns / 16;
  return (k / kStepsOfPanel * panel_stride + k % kStepsOfPanel * 32) >> 4;
}
// The same for 16 rows.
__device__ __forceinline__ u64 row_step(i32 k) { return (k * 2 * kGroupBytes) >> 4; }
