// Finds the blocks of which an attention mask shows any pair: bits for a kernel that passes over the others.
//
//   bit i of visible_blocks[head][${outer}][w]     of ${inner} 32·w + i, for each head of each batch entry that the mask has
//
// A warp reads a block, up to the first rows in which it finds a pair, and the 32 warps of a CTA those of a word. CTAs stay, and take words as far apart as
// there are of them.

//% include primitives/mma_sync

struct Arguments {
//% for argument_fields
  ${argument_fields.type} ${argument_fields.name};
//% end
};
constexpr u32 kArgumentBytes = ${argument_bytes};

constexpr i32 kBlockQ = ${block_q}, kBlockKv = ${block_kv}, kThreads = ${threads}, kWarps = kThreads / kWarpSize;
constexpr i32 kVectorBytes = 16;                     // that a lane loads at once
constexpr i32 kVectors = kBlockKv / kVectorBytes;    // of a row of a block
constexpr i32 kRowsAtOnce = kWarpSize / kVectors;    // rows of a block that a warp loads at once
constexpr i32 kAtOnce = 4;                           // loads of a lane that are under way together
constexpr u32 kFlag = sizeof(u32);
static_assert(kWarps == 32 && kBlockKv % kVectorBytes == 0 && kVectors <= kWarpSize && kWarps * kFlag == ${shared_bytes});

__device__ __forceinline__ i32 ceil_div(i32 a, i32 b) { return (a + b - 1) / b; }

// Whether any of the bytes [0, count) is one that shows a pair.
__device__ __forceinline__ bool any_of(const char* bytes, i32 count, bool aligned) {
  if (aligned && count >= kVectorBytes) {
    const Vec4 v = ld_global_v4_b32(bytes);
    return (v.x | v.y | v.z | v.w) != 0;
  }
  u32 found = 0;
  for (i32 i = 0; i < count && i < kVectorBytes; ++i) found |= ld_global_u8(bytes + i);
  return found != 0;
}

// Whether a block holds a pair that the mask shows. plane: of a head; its rows are `stride` bytes apart.
__device__ __forceinline__ bool shows_any(const Arguments& args, const char* plane, i64 stride, i32 query_block, i32 key_block, bool aligned) {
  const i32 lane = static_cast<i32>(lane_index()), key = key_block * kBlockKv + lane % kVectors * kVectorBytes;
  const i32 first = args.attention_mask_rows == 1 ? 0 : query_block * kBlockQ, left = args.attention_mask_rows - first;
  const i32 rows = left < kBlockQ ? left : kBlockQ, keys = args.${pair_keys} - key;
  if (query_block * kBlockQ >= args.${pair_queries} || key_block * kBlockKv >= args.${pair_keys}) return false;
  for (i32 begin = 0; begin < rows; begin += kAtOnce * kRowsAtOnce) {
    bool found = false;
#pragma unroll
    for (i32 i = 0; i < kAtOnce; ++i) {
      const i32 row = begin + i * kRowsAtOnce + lane / kVectors;
      if (lane < kRowsAtOnce * kVectors && row < rows && keys > 0) found = any_of(plane + (first + row) * stride + key, keys, aligned) || found;
    }
    if (vote_sync_any(found)) return true;
  }
  return false;
}

extern "C" __global__ void __launch_bounds__(kThreads) ${entry}(const __grid_constant__ Arguments args) {
  const u32 shared = shared_base(), warp = warp_index(), lane = lane_index();
  const i32 outer = ceil_div(${outer_rows}), words = ceil_div(${inner_rows} * kWarps), heads = args.attention_mask_batch * args.attention_mask_heads;
  const char* const mask = static_cast<const char*>(args.attention_mask);
  const i64 strides = args.attention_mask_stride_batch | args.attention_mask_stride_head | args.attention_mask_stride_row;
  const bool aligned = ((strides | reinterpret_cast<i64>(mask)) & (kVectorBytes - 1)) == 0;
  const i64 all = static_cast<i64>(heads) * outer * words;
  for (i64 word = block_index(); word < all; word += grid_size()) {
    const i32 inner = static_cast<i32>(word % words) * kWarps + static_cast<i32>(warp), of_head = static_cast<i32>(word / words % outer);
    const i32 head = static_cast<i32>(word / words / outer), batch = head / args.attention_mask_heads;
    const char* const plane = mask + batch * args.attention_mask_stride_batch + (head - batch * args.attention_mask_heads) * args.attention_mask_stride_head;
    const bool shows = shows_any(args, plane, args.attention_mask_stride_row, ${query_block}, ${key_block}, aligned);
    if (lane == 0) st_shared_b32(shared + kFlag * warp, shows ? 1u << warp : 0u);
    bar_sync();
    if (warp == 0) {
      const u32 bits = redux_sync_or_b32(ld_shared_b32(shared + kFlag * lane));
      if (lane == 0) st_global_b32(args.visible_blocks + word, bits);
    }
    bar_sync();  // all flags have been read
  }
}
//% include primitives/entry/${target}
