// Sums over a row of more than a part of the keys. O, its row maximum and its row sum leave the registers after each part, and the warp goes on as if its
// tile began: here they are added to those of the parts before, as kernels/forward_add_parts does where CTAs have one part each. A thread reads what it
// wrote itself: its pairs of values lie kPairStride floats apart.
struct SumsOfParts {
  static constexpr i32 kRowsOfThread = 2 * kRowTiles, kPairsOfRow = kChunks + 1, kPairStride = 2 * kThreads;
  float* place;
  bool any = false;  // of this tile

  __device__ __forceinline__ explicit SumsOfParts(const Arguments& args)
      : place(args.promoted_sums + static_cast<i64>(block_index()) * (kRowsOfThread * kPairsOfRow * kPairStride) + 2 * thread_index()) {}

  // Leaves O and the statistics as at the beginning of a tile.
  __device__ __forceinline__ void add(OutputFragments& o, OnlineSoftmax& softmax) {
    softmax.add_lanes();
    add_earlier(o, softmax);
#pragma unroll
    for (i32 i = 0; i < kRowsOfThread; ++i) {
      float& m = softmax.row_max[i / 2][i % 2];
      float& sum = softmax.row_sum[i / 2][i % 2];
      float* const to = place + i * kPairsOfRow * kPairStride;
      st_global_v2_f32(to, {m, sum});
      m = negative_infinity();
      sum = 0;
#pragma unroll
      for (i32 n = 0; n < kChunks; ++n) {
        float* const pair = o[i / 2][n] + 2 * (i % 2);
        st_global_v2_f32(to + (n + 1) * kPairStride, {pair[0], pair[1]});
        pair[0] = pair[1] = 0;
      }
    }
    any = true;
  }
  // Makes O and the statistics those of all blocks of the tile.
  __device__ __forceinline__ void finish(OutputFragments& o, OnlineSoftmax& softmax) const {
    softmax.add_lanes();
    add_earlier(o, softmax);
  }

 private:
  __device__ __forceinline__ void add_earlier(OutputFragments& o, OnlineSoftmax& softmax) const {
    if (!any) return;
#pragma unroll
    for (i32 i = 0; i < kRowsOfThread; ++i) {
      float& m = softmax.row_max[i / 2][i % 2];
      float& sum = softmax.row_sum[i / 2][i % 2];
      const float* const from = place + i * kPairsOfRow * kPairStride;
      const Vec2F32 statistics = ld_weak_global_v2_f32(from);  // the maximum and the sum
      const float to = max_f32(statistics.x, m), finite = to == negative_infinity() ? 0 : to;
      const float earlier = ex2_approx_ftz_f32((statistics.x - finite) * softmax.softmax_scale_log2);
      const float now = ex2_approx_ftz_f32((m - finite) * softmax.softmax_scale_log2);
      sum = fma_rn_f32(sum, now, statistics.y * earlier);
      m = to;
#pragma unroll
      for (i32 n = 0; n < kChunks; ++n) {
        float* const pair = o[i / 2][n] + 2 * (i % 2);
        const Vec2F32 before = ld_weak_global_v2_f32(from + (n + 1) * kPairStride);
        pair[0] = fma_rn_f32(pair[0], now, before.x * earlier);
        pair[1] = fma_rn_f32(pair[1], now, before.y * earlier);
      }
    }
  }
};
