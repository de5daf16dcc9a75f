// attune ${kernel_class} · templates ${templates_hash}
//
// dQ of one tile of queries of one head from its sums over all keys:
//
//   dQ = scale·sums, rounded
//
// A warp takes 16 queries and four chunks of columns at a time; a lane writes whole chunks of a row.
//% include primitives/prelude/${target}
//% include primitives/memory/${target}
//% include primitives/math/${target}
//% include primitives/sm80/${target}
//% include primitives/single/${target}
//% include primitives/add/${target}

struct Arguments {
//% for argument_fields
  ${argument_fields.type} ${argument_fields.name};
//% end
};
constexpr u32 kArgumentBytes = ${argument_bytes};

constexpr i32 kBlockQ = ${block_q}, kHeadDim = ${head_dim}, kThreads = ${threads};
constexpr i32 kChunks = kHeadDim / 8, kChunksAtOnce = 4, kParts = (kChunks + kChunksAtOnce - 1) / kChunksAtOnce;

//% include tile/${chunk_access}
//% include tile/pack_elements
//% include tile/transpose_in_quad
//% include backward/query_sums_${sums_order}
//% include backward/query_sums_place

extern "C" __global__ void __launch_bounds__(kThreads) ${entry}(const __grid_constant__ Arguments args) {
  const i32 tile = static_cast<i32>(block_index()) % args.query_tiles, batch_head = static_cast<i32>(block_index()) / args.query_tiles;
  const i32 batch = batch_head / args.heads_q, head = batch_head - batch * args.heads_q;
  char* d_q = static_cast<char*>(args.d_q) + 2 * (batch * args.d_q_stride_batch + head * args.d_q_stride_head);
  const i32 lane = lane_index();
  for (i32 i = warp_index(); i < kBlockQ / 16 * kParts; i += kThreads / kWarpSize) {
    const i32 row = tile * kBlockQ + i / kParts * 16, first_chunk = i % kParts * kChunksAtOnce;
    const float* sums = args.d_q_sums + query_sums_place(args, batch_head, row, first_chunk);
    u32 upper[4] = {}, lower[4] = {};
#pragma unroll
    for (i32 j = 0; j < kChunksAtOnce; ++j) {
      if (kChunks % kChunksAtOnce != 0 && first_chunk + j >= kChunks) break;
      const Vec4F32 acc = load_query_sums(sums + j * kSumsOfFragment);
      upper[j] = pack_elements(args.softmax_scale * acc.x, args.softmax_scale * acc.y);
      lower[j] = pack_elements(args.softmax_scale * acc.z, args.softmax_scale * acc.w);
    }
    transpose_in_quad(upper);
    transpose_in_quad(lower);
    const i32 chunk = first_chunk + lane % 4, query = row + lane / 4;
    if (kChunks % kChunksAtOnce != 0 && chunk >= kChunks) continue;
    char* to = d_q + query * args.d_q_stride_row * 2 + 16 * chunk;
    if (query < args.seq_q) store_chunk(to, Vec4{upper[0], upper[1], upper[2], upper[3]});
    if (query + 8 < args.seq_q) store_chunk(to + 16 * args.d_q_stride_row, Vec4{lower[0], lower[1], lower[2], lower[3]});
  }
}
//% include primitives/entry/${target}
