// Each CTA of a cluster loads a part of the rows of every tile of K and V and sends it to all of them, to the same place. The full barrier of each counts the
// bytes of all parts. A buffer must be free in every CTA: consumers arrive at the empty barriers of all. Other CTAs' parts may come before this one expects
// them, but not before its consumers have left the buffer.
struct KvLoads {
  static constexpr i32 kRows = kBlockKv / kCluster;
  static constexpr u16 kAllCtas = (1 << kCluster) - 1;
  static_assert(kCluster == 2 && kRows % 8 == 0);  // the swizzle's pattern repeats every 8 rows
  Barriers barriers;

  // Loads into a buffer that the consumers of all CTAs have left.
  __device__ __forceinline__ void load(u32 to, const TensorMap& map, u32 full, i32 head, MapPlace place) const {
    const u32 rank = cluster_cta_rank();
    mbarrier_arrive_expect_tx(full, kKvTileBytes);
    place.row += static_cast<i32>(rank) * kRows;
#pragma unroll
    for (i32 panel = 0; panel < kPanels; ++panel)
      load_box_multicast(to + panel * kKvPanelStride + rank * kRows * kPanelBytes, map, full, kAllCtas, panel * kPanelColumns, head, place);
  }
};
