// Tiles of what tensors of pairs hold for the queries and the keys of a block: panels as those of Q are. TMA copies them where a tensor map describes the
// tensor. Where one then repeats along the queries, the rows of a tile are its first one, and where it repeats along the heads, those of its first head.
// Other tensors have rows that start anywhere: each warp loads what it needs into its own part of the tile.
template <i32 kBytes, i32 kColumns, i32 kCount>
struct PairPanels {
  static constexpr i32 kElement = kBytes;
  static constexpr u32 kRowBytes = kBytes * kColumns, kStride = kBlockQ * kRowBytes, kTileBytes = kCount * kStride;
  static_assert(kCount * kColumns >= kBlockKv && (kRowBytes == 128 || kRowBytes == 64 || kRowBytes == 32));

  // Byte b of a row lies at at(row(...), b): TMA xors chunks of 16 bytes with bits of the row.
  __device__ __forceinline__ static u32 row(u32 tile, i32 row) {
    const u32 address = tile + row * kRowBytes;
    return address ^ (address >> 3 & (kRowBytes - 16) & 0x70);
  }
  __device__ __forceinline__ static u32 at(u32 row, u32 byte) { return (row ^ byte % kRowBytes) + byte / kRowBytes * kStride; }

  // The tile completes on `full`.
  __device__ __forceinline__ static void copy(u32 tile, const TensorMap& map, u32 full, i32 first_key, i32 head, i32 row, i32 batch) {
#pragma unroll
    for (i32 panel = 0; panel < kCount; ++panel) cp_async_bulk_tensor_4d_load(tile + panel * kStride, map, full, first_key + panel * kColumns, head, row, batch);
  }

  // A warp loads kRows rows from `first_row` of the tile on, of each kKeys keys from the tile's key `key` on. of_row: where a row lies in global memory,
  // from its first key on; first_key: of the tile; last: the last key that there is, which stands for those behind it.
  template <i32 kRows, i32 kKeys, class OfRow>
  __device__ __forceinline__ static void load(u32 tile, i32 first_row, i32 key, i32 first_key, i32 last, OfRow of_row) {
    constexpr i32 kPerWord = 4 / kBytes, kWords = kKeys / kPerWord;
    constexpr i32 kAhead = kRows * kWords % 128 == 0 ? 4 : 2;  // words that a lane loads before it stores them
    static_assert(kRows * kWords % (32 * kAhead) == 0);
    bar_warp_sync();  // the warp has read what lay there
#pragma unroll 1
    for (i32 begin = static_cast<i32>(lane_index()); begin < kRows * kWords; begin += 32 * kAhead) {
      u32 words[kAhead];
#pragma unroll
      for (i32 i = 0; i < kAhead; ++i) words[i] = word_of(of_row((begin + 32 * i) / kWords), first_key + key + (begin + 32 * i) % kWords * kPerWord, last);
#pragma unroll
      for (i32 i = 0; i < kAhead; ++i)
        st_shared_b32(at(row(tile, first_row + (begin + 32 * i) / kWords), kBytes * key + (begin + 32 * i) % kWords * 4), words[i]);
    }
    bar_warp_sync();
  }

 private:
  __device__ __forceinline__ static u32 word_of(const char* row, i32 key, i32 last) {
    u32 word = 0;
#pragma unroll
    for (i32 i = 0; i < 4 / kBytes; ++i) {
      const char* from = row + kBytes * static_cast<i64>(key + i < last ? key + i : last);
      if (kBytes == 4) return f32_to_bits(ld_global_f32(reinterpret_cast<const float*>(from)));
      word |= (kBytes == 2 ? ld_global_b16(from) : ld_global_u8(from)) << 8 * kBytes * i;
    }
    return word;
  }
};
//% for pair_operands

using ${pair_operands.constant}Panels = PairPanels<${pair_operands.bytes}, ${pair_operands.panel_columns}, ${pair_operands.panels}>;
static_assert(kBarrierOffset >= k${pair_operands.constant}Offset + ${pair_stages} * ${pair_operands.constant}Panels::kTileBytes);
__device__ __forceinline__ u32 ${pair_operands.name}_tile(u32 shared, i32 stage) { return shared + k${pair_operands.constant}Offset + stage * ${pair_operands.constant}Panels::kTileBytes; }
__device__ __forceinline__ void copy_${pair_operands.name}(const Arguments& args, u32 tile, u32 full, i32 batch, i32 head, i32 query, i32 first_key) {
  ${pair_operands.constant}Panels::copy(tile, args.${pair_operands.name}_map, full, first_key, args.${pair_operands.name}_stride_head == 0 ? 0 : head,
    args.${pair_operands.name}_stride_row == 0 ? 0 : query, args.${pair_operands.name}_stride_batch == 0 ? 0 : batch);
}
// The row of a tile that holds what another one needs.
__device__ __forceinline__ i32 row_of_${pair_operands.name}(const Arguments& args, i32 row) {
//% if packed
  const i32 head = static_cast<i32>(static_cast<u32>(row) % kGroup);
  if (!args.${pair_operands.name}_by_map) return row;
  return (args.${pair_operands.name}_stride_row == 0 ? 0 : row - head) + (args.${pair_operands.name}_stride_head == 0 ? 0 : head);
//% else
  return args.${pair_operands.name}_by_map && args.${pair_operands.name}_stride_row == 0 ? 0 : row;
//% end
}
//% end
