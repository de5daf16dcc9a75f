// Persistent CTAs, or clusters of them, take tiles of keys as far apart as there are of them; in every second round backwards, which evens out tiles
// that grow shorter. All of them run at once and each takes tiles with rising numbers: one may wait for tiles with smaller numbers than its own.
struct KeyTilesOfCta {
  __device__ __forceinline__ KeyTilesOfCta(const Arguments&, u32 /*shared*/) {}
  // Calls work with the index of each tile.
  template <class Work>
  __device__ __forceinline__ void for_each(const Arguments& args, const Work& work) const {
    const i32 takers = static_cast<i32>(grid_size() / kCluster), taker = static_cast<i32>(block_index() / kCluster);
#pragma unroll 1
    for (i32 round = 0;; ++round) {
      const i32 number = round * takers + (round % 2 ? takers - 1 - taker : taker);
      if (number >= args.tiles) break;
      work(tile_in_order(args, number));
    }
  }
};
