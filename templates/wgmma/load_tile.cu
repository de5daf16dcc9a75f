// Copies a tile panel by panel; all of it completes on `full`.
template <u32 kPanelStride>
__device__ __forceinline__ void load_tile(u32 to, const TensorMap& map, u32 full, i32 head, MapPlace place) {
  mbarrier_arrive_expect_tx(full, kPanels * kPanelStride);
#pragma unroll
  for (i32 panel = 0; panel < kPanels; ++panel)
    load_box(to + panel * kPanelStride, map, full, panel * kPanelColumns, head, place);
}
