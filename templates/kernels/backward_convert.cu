// Converts the fp32 sums of one tile of ${rows_of} of one head to gradients:
//
//% for gradients
//   ${gradients.formula}
//% end
//
// A warp takes 16 rows and four chunks of columns at a time; a lane writes whole chunks of a row.

//% include primitives/mma_sync

struct Arguments {
//% for argument_fields
  ${argument_fields.type} ${argument_fields.name};
//% end
};
constexpr u32 kArgumentBytes = ${argument_bytes};

constexpr i32 kTileRows = ${rows_per_tile}, kHeadDim = ${head_dim}, kThreads = ${threads};
constexpr i32 kChunks = kHeadDim / 8, kChunksAtOnce = 4, kParts = (kChunks + kChunksAtOnce - 1) / kChunksAtOnce;

//% include tile/${chunk_access}
//% include tile/pack_elements
//% include wgmma/transpose_in_quad
//% include attention/sequence_${sequence}
//% include mma_sync/sums_${sums_order}
//% include mma_sync/sums_place

// head counts through all batch entries. gradient points to that head's first row; rows are row_bytes apart.
__device__ __forceinline__ void convert(const float* all_sums, float scale, char* gradient, i64 row_bytes, i64 head, i32 tile, i32 rows) {
  const i32 lane = lane_index();
  for (i32 i = warp_index(); i < kTileRows / 16 * kParts; i += kThreads / kWarpSize) {
    const i32 first_row = tile * kTileRows + i / kParts * 16, first_chunk = i % kParts * kChunksAtOnce;
    const float* sums = all_sums + sums_place(head, padded_rows<kTileRows>(rows), first_row, first_chunk);
    u32 upper[4] = {}, lower[4] = {};
#pragma unroll
    for (i32 j = 0; j < kChunksAtOnce; ++j) {
      if (kChunks % kChunksAtOnce != 0 && first_chunk + j >= kChunks) break;
      const Vec4F32 acc = load_sums(sums + j * kSumsOfFragment);
      upper[j] = pack_elements(scale * acc.x, scale * acc.y);
      lower[j] = pack_elements(scale * acc.z, scale * acc.w);
    }
    transpose_in_quad(upper);
    transpose_in_quad(lower);
    const i32 chunk = first_chunk + lane % 4, row = first_row + lane / 4;
    if (kChunks % kChunksAtOnce != 0 && chunk >= kChunks) continue;
    char* to = gradient + row * row_bytes + 16 * chunk;
    if (row < rows) store_chunk(to, Vec4{upper[0], upper[1], upper[2], upper[3]});
    if (row + 8 < rows) store_chunk(to + 8 * row_bytes, Vec4{lower[0], lower[1], lower[2], lower[3]});
  }
}

extern "C" __global__ void __launch_bounds__(kThreads) ${entry}(const __grid_constant__ Arguments args) {
//% if programmatic_launch
  griddepcontrol_wait();
//% end
  const i32 tile = static_cast<i32>(block_index()) % args.${tiles}, batch_head = static_cast<i32>(block_index()) / args.${tiles};
  const Sequence sequence(args, batch_head / args.${heads});
  const i32 head = batch_head - sequence.batch * args.${heads};
//% for gradients
  char* ${gradients.name} = static_cast<char*>(args.${gradients.name}) +
              2 * (sequence.${row}_offset(args.${gradients.name}_stride_batch, args.${gradients.name}_stride_row) +
                   head * args.${gradients.name}_stride_head);
  convert(args.${gradients.name}_sums, ${gradients.scale}, ${gradients.name}, 2 * args.${gradients.name}_stride_row, batch_head, tile, ${row}_count(args, sequence));
//% end
}
//% include primitives/entry/${target}
