//% if invariant
// Sums over a row of more than a part of the keys. O, its row maximum and its row sum leave the registers after each part, and a warpgroup goes on as if
// its tile began: here they are added to those of the parts before, as kernels/forward_add_parts does where CTAs have one part each.
//% else
// Sums over a row of more than kPromotionBlocks blocks of keys. The tensor cores truncate what they add to O, so that a long sum comes out too small.
// So O, its row maximum and its row sum leave the registers after so many blocks, and a warpgroup goes on as if its tile began: here they are added
// to what left before, rounded to nearest.
//% end
// A thread reads what it wrote itself: its pairs of values lie kPairStride floats apart.
struct PromotedSums {
  static constexpr i32 kPairStride = 2 * kConsumers * kWarpgroup, kPairsOfO = kHeadDimV / 4, kPairs = kPairsOfO + 2;
  float* place;
  bool any = false;  // of this tile

  __device__ __forceinline__ explicit PromotedSums(const Arguments& args)
      : place(args.promoted_sums + static_cast<i64>(block_index()) * (kPairs * kPairStride) + 2 * (thread_index() - kWarpgroup)) {}

  // Leaves O and the statistics of the blocks since the last call to be overwritten.
  __device__ __forceinline__ void promote(OutputFragments& o, Softmax& softmax) {
    add_earlier(o, softmax);
#pragma unroll
    for (i32 pair = 0; pair < kPairsOfO; ++pair) st_global_v2_f32(place + pair * kPairStride, {o[2 * pair], o[2 * pair + 1]});
    st_global_v2_f32(place + kPairsOfO * kPairStride, {softmax.row_max[0], softmax.row_max[1]});
    st_global_v2_f32(place + (kPairsOfO + 1) * kPairStride, {softmax.row_sum[0], softmax.row_sum[1]});
    any = true;
  }
  // Makes O and the statistics those of all blocks of the tile.
  __device__ __forceinline__ void finish(OutputFragments& o, Softmax& softmax) {
    add_earlier(o, softmax);
    any = false;
  }

 private:
//% if invariant
  // The sum of the four lanes that share a row.
  __device__ __forceinline__ static float quad_sum(float sum) {
    sum += shfl_sync_bfly_f32<1>(sum);
    return sum + shfl_sync_bfly_f32<2>(sum);
  }
//% end
  __device__ __forceinline__ void add_earlier(OutputFragments& o, Softmax& softmax) const {
//% if invariant
#pragma unroll
    for (i32 half = 0; half < 2; ++half) softmax.row_sum[half] = quad_sum(softmax.row_sum[half]);
//% end
    if (!any) return;
    const Vec2F32 maxima = ld_weak_global_v2_f32(place + kPairsOfO * kPairStride), sums = ld_weak_global_v2_f32(place + (kPairsOfO + 1) * kPairStride);
    const float earlier_max[2] = {maxima.x, maxima.y}, earlier_sum[2] = {sums.x, sums.y};
    float earlier[2], now[2];  // what both are multiplied by
#pragma unroll
    for (i32 half = 0; half < 2; ++half) {
      const float m = max_f32(earlier_max[half], softmax.row_max[half]), finite = Softmax::finite_row_max<true>(m);
      earlier[half] = ex2_approx_ftz_f32((earlier_max[half] - finite) * softmax.scale_log2);
      now[half] = ex2_approx_ftz_f32((softmax.row_max[half] - finite) * softmax.scale_log2);
      softmax.row_sum[half] = fma_rn_f32(softmax.row_sum[half], now[half], earlier_sum[half] * earlier[half]);
      softmax.row_max[half] = m;
    }
#pragma unroll
    for (i32 pair = 0; pair < kPairsOfO; ++pair) {
      const Vec2F32 before = ld_weak_global_v2_f32(place + pair * kPairStride);
      const i32 half = pair % 2;
      o[2 * pair] = fma_rn_f32(o[2 * pair], now[half], before.x * earlier[half]);
      o[2 * pair + 1] = fma_rn_f32(o[2 * pair + 1], now[half], before.y * earlier[half]);
    }
  }
};
