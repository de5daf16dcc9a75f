// attune ${kernel_class} · templates ${templates_hash}
//
// Of each query, what its keys' gradients have in common:
//
//   delta = rowsum(dO ∘ O) - dLSE,   0 for a query that sees nothing
//
// A warp takes kRows / kWarps rows of a tile, one after the other; sums are in fp32.
//% include primitives/prelude/${target}
//% include primitives/memory/${target}
//% include primitives/math/${target}
//% include primitives/sm80/${target}
//% include primitives/single/${target}

struct Arguments {
//% for argument_fields
  ${argument_fields.type} ${argument_fields.name};
//% end
};
constexpr u32 kArgumentBytes = ${argument_bytes};

constexpr i32 kHeadDim = ${head_dim}, kRows = ${rows_per_tile}, kThreads = ${threads};
constexpr i32 kWarps = kThreads / kWarpSize;
static_assert(kRows % kWarps == 0);

__device__ __forceinline__ float element(const void* tensor, i64 index) {
  return static_cast<float>(cvt_f64_${dtype}(ld_global_b16(static_cast<const char*>(tensor) + 2 * index)));
}

extern "C" __global__ void __launch_bounds__(kThreads) ${entry}(const __grid_constant__ Arguments args) {
  const i32 tiles = args.query_tiles, tile = static_cast<i32>(block_index()) % tiles, batch_head = static_cast<i32>(block_index()) / tiles;
  const i32 batch = batch_head / args.heads_q, head = batch_head - batch * args.heads_q;
  for (i32 i = warp_index(); i < kRows; i += kWarps) {
    const i32 query = tile * kRows + i;
    if (query >= args.seq_q) break;
    const i64 o = batch * args.o_stride_batch + head * args.o_stride_head + query * args.o_stride_row;
    const i64 d_o = batch * args.d_o_stride_batch + head * args.d_o_stride_head + query * args.d_o_stride_row;
    float sum = 0;
    for (i32 d = lane_index(); d < kHeadDim; d += kWarpSize) sum = fma_rn_f32(element(args.d_o, d_o + d), element(args.o, o + d), sum);
    sum += shfl_sync_bfly_f32<16>(sum);
    sum += shfl_sync_bfly_f32<8>(sum);
    sum += shfl_sync_bfly_f32<4>(sum);
    sum += shfl_sync_bfly_f32<2>(sum);
    sum += shfl_sync_bfly_f32<1>(sum);
    if (lane_index() != 0) continue;
    const i64 row = static_cast<i64>(batch_head) * args.seq_q + query;
    const float d_lse = args.d_lse == nullptr ? 0.0f : ld_global_f32(args.d_lse + row);
    st_global_f32(args.delta + row, ld_global_f32(args.lse + row) == negative_infinity() ? 0.0f : sum - d_lse);
  }
}
//% include primitives/entry/${target}
