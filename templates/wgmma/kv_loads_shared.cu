// Each CTA of a cluster loads a part of the rows of every tile of K and V and sends it to all of them, to the same place. The full barrier of
// each counts the bytes of all parts. A buffer must be free in every CTA: consumers arrive at the empty barrier of their own, and before each
// load the producers meet, so that one thread sends one arrival to another SM for a tile. All CTAs load the same tiles in the same order,
// hence none is more than a meeting ahead: two barriers, one after the other, are enough.
struct KvLoads {
  static constexpr i32 kRows = kBlockKv / kCluster;
  static constexpr u16 kAllCtas = (1 << kCluster) - 1;
  static_assert(kCluster == 2 && kRows % 8 == 0);  // the swizzle's pattern repeats every 8 rows
  Barriers barriers;
  u32 meetings = 0;

  // Loads into a buffer that this CTA's consumers have left.
  __device__ __forceinline__ void load(u32 to, const TensorMap& map, u32 full, i32 head, MapPlace place) {
    const u32 rank = cluster_cta_rank();
    const u32 meeting = barriers.meeting(meetings % 2);
    mbarrier_arrive_cluster(meeting, rank ^ 1);
    mbarrier_wait_parity(meeting, meetings / 2 & 1);
    ++meetings;
    mbarrier_arrive_expect_tx(full, kKvTileBytes);
    place.row += static_cast<i32>(rank) * kRows;
#pragma unroll
    for (i32 panel = 0; panel < kPanels; ++panel)
      load_box_multicast(to + panel * kKvPanelStride + rank * kRows * kPanelBytes, map, full, kAllCtas, panel * kPanelColumns, head, place);
  }
};
