// What the tensors of pairs hold for a thread's scores of sixteen keys, step after step. Element i is that of its score 8·step + i.
struct PairElements {
//% if bias
//% if bias_by_matrices
  u32 bias_row;      // where the row lies that this lane gives to four matrices of eight rows and eight keys
  u32 bias_pairs[4];
//% else
  u32 bias_rows[2];  // where the first of its elements lies, of both of its rows
  u64 bias_pairs[4];
//% end
//% end
//% if attention_mask
  u32 attention_mask_rows[2];  // where the word with the first of its elements lies, of both of its rows
  u32 attention_mask_pairs[4];
//% end

  PairElements() = default;
  // index: of the warpgroup among the consumers.
  __device__ __forceinline__ PairElements(const Arguments& args, u32 shared, i32 stage, i32 index) {
    const i32 lane = static_cast<i32>(lane_index()), first = 64 * index + static_cast<i32>(warp_index() % 4) * 16;
//% if bias_by_matrices
    bias_row = BiasPanels::row(bias_tile(shared, stage), row_of_bias(args, first + lane % 16)) ^ lane / 16 * 16;
//% end
//% if pairs_by_rows
#pragma unroll
    for (i32 half = 0; half < 2; ++half) {
      const i32 row = first + lane / 4 + 8 * half;
//% if bias_by_rows
      bias_rows[half] = BiasPanels::row(bias_tile(shared, stage), row_of_bias(args, row)) ^ lane % 4 * 8;
//% end
//% if attention_mask
      attention_mask_rows[half] = AttentionMaskPanels::row(attention_mask_tile(shared, stage), row_of_attention_mask(args, row)) ^ lane % 4 / 2 * 4;
//% end
    }
//% end
  }
  __device__ __forceinline__ void read(i32 step) {
//% if bias_by_matrices
    ldmatrix_x4(bias_pairs, BiasPanels::at(bias_row, 32 * step));
//% end
//% if pairs_by_rows
#pragma unroll
    for (i32 i = 0; i < 4; ++i) {
//% if bias_by_rows
      bias_pairs[i] = ld_shared_b64(BiasPanels::at(bias_rows[i % 2], 64 * step + i / 2 * 32));
//% end
//% if attention_mask
      attention_mask_pairs[i] = ld_shared_b32(AttentionMaskPanels::at(attention_mask_rows[i % 2], 16 * step + i / 2 * 8)) >> lane_index() % 2 * 16;
//% end
    }
//% end
  }
//% if bias_by_matrices
  __device__ __forceinline__ float bias(i32 i) const { return i % 2 ? cvt_f32_high_${bias_type}(bias_pairs[pair_of(i)]) : cvt_f32_low_${bias_type}(bias_pairs[pair_of(i)]); }
//% end
//% if bias_by_rows
  __device__ __forceinline__ float bias(i32 i) const { return bits_to_f32(static_cast<u32>(bias_pairs[pair_of(i)] >> i % 2 * 32)); }
//% end
//% if attention_mask
  __device__ __forceinline__ bool attends(i32 i) const { return (attention_mask_pairs[pair_of(i)] >> i % 2 * 8 & 0xff) != 0; }
//% end

 private:
  __device__ __forceinline__ static i32 pair_of(i32 i) { return i / 2 % 2 + i / 4 * 2; }
};
