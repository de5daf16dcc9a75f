// Copies a tensor of pairs to rows that begin at multiples of 16 bytes, as tensor maps want them, batch entry after batch entry and head after head. A warp
// copies a row at a time; CTAs stay, and take rows as far apart as there are warps. What fills a row's last bytes is zero.

//% include primitives/mma_sync

struct Arguments {
//% for argument_fields
  ${argument_fields.type} ${argument_fields.name};
//% end
};
constexpr u32 kArgumentBytes = ${argument_bytes};

constexpr i32 kBytes = ${element_bytes}, kOfWord = 4 / kBytes;  // of an element; elements
constexpr i32 kThreads = ${threads}, kWarps = kThreads / kWarpSize;
constexpr i32 kAhead = 4;  // words that a lane loads before it stores them

__device__ __forceinline__ u32 word_of(const char* row, i32 word, i32 elements) {
  u32 bits = 0;
#pragma unroll
  for (i32 i = 0; i < kOfWord; ++i) {
    const i32 element = word * kOfWord + i;
    if (element >= elements) break;
    const char* from = row + kBytes * static_cast<i64>(element);
    if (kBytes == 4) return f32_to_bits(ld_global_f32(reinterpret_cast<const float*>(from)));
    bits |= (kBytes == 2 ? ld_global_b16(from) : ld_global_u8(from)) << 8 * kBytes * i;
  }
  return bits;
}

extern "C" __global__ void __launch_bounds__(kThreads) ${entry}(const __grid_constant__ Arguments args) {
  const u32 heads = static_cast<u32>(args.${operand}_heads), of_head = static_cast<u32>(args.${operand}_rows);
  const u64 rows = static_cast<u64>(args.${operand}_batch) * heads * of_head;
  const i32 words = (kBytes * args.${pair_keys} + 15) / 16 * 4;
  for (u64 number = static_cast<u64>(block_index()) * kWarps + warp_index(); number < rows; number += static_cast<u64>(grid_size()) * kWarps) {
    const u64 plane = number / of_head;
    const i64 row = static_cast<i64>(number - plane * of_head), batch = static_cast<i64>(plane / heads), head = static_cast<i64>(plane) - batch * heads;
    const char* const from =
        static_cast<const char*>(args.${operand}) + kBytes * (batch * args.${operand}_stride_batch + head * args.${operand}_stride_head + row * args.${operand}_stride_row);
    u32* const to = args.${operand}_copy + number * static_cast<u64>(words);
    for (i32 begin = static_cast<i32>(lane_index()); begin < words; begin += kAhead * static_cast<i32>(kWarpSize)) {
      u32 loaded[kAhead];
#pragma unroll
      for (i32 i = 0; i < kAhead; ++i) loaded[i] = word_of(from, begin + i * static_cast<i32>(kWarpSize), args.${pair_keys});
#pragma unroll
      for (i32 i = 0; i < kAhead; ++i) {
        const i32 word = begin + i * static_cast<i32>(kWarpSize);
        if (word < words) st_global_b32(to + word, loaded[i]);
      }
    }
  }
}
//% include primitives/entry/${target}
