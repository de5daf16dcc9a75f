using DqFragments = float[kDqColumns / 2];  // of dQ: columns of a product, of 64 queries
constexpr u32 kDqPartBytes = kDqColumns / kPanelColumns * kKvPanelStride;  // of K, between the columns of one product and those of the next

// dQ = dS K, or dQ += dS K. `columns`: the panel of K that the columns of the product begin with.
template <bool kFirst>
__device__ __forceinline__ void issue_dq(DqFragments& dq, u32 ds, u32 columns) {
  const u32 scores = tile_place(ds, kQPanelStride), keys = tile_place(columns, kKvPanelStride);
  if (kFirst)
    wgmma_ss_first<true>(dq, matrix_descriptor(scores), matrix_descriptor(keys));
  else
    wgmma_ss<true, true>(dq, matrix_descriptor(scores), matrix_descriptor(keys));
#pragma unroll
  for (i32 step = 1; step < kKeySteps; ++step)
    wgmma_ss<true, true>(dq, matrix_descriptor(scores + column_step(step, kQPanelStride)), matrix_descriptor(keys + row_step(step)));
}
