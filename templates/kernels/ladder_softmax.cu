// Softmax of the rows of S in device memory, in place, a warp for each row:
//
//   ${formulas}
//   P = exp(S - m) / l      LSE = m + ln l
//
// S and m are without the softmax scale: exponentials are taken as exp2(c (S - m)), c = scale·log2(e).

//% include primitives/mma_sync

struct Arguments {
//% for argument_fields
  ${argument_fields.type} ${argument_fields.name};
//% end
};
constexpr u32 kArgumentBytes = ${argument_bytes};

constexpr i32 kWarps = ${warps}, kThreads = kWarps * kWarpSize, kRowsPerTile = kWarps;

//% include attention/sequence_${sequence}
//% include attention/mask_${mask}
//% include ladder/query_tile
//% include ladder/score_rows
//% include ladder/warp_sums

struct RowStatistics {
  float largest, sum;  // m and l
};

// exp(scale·(x - m))
__device__ __forceinline__ float exponential(float x, float m, float scale_log2) {
  return ex2_approx_ftz_f32((x - m) * scale_log2);
}

//% include ladder/statistics_${passes}

extern "C" __global__ void __launch_bounds__(kThreads) ${entry}(const __grid_constant__ Arguments args) {
  const QueryTile tile(args);
  const i32 row = warp_index();
  if (row >= tile.rows) return;
  float* s = score_row(args, tile, row);
  const i32 keys = attended_keys(args, tile, row);
  const RowStatistics statistics = row_statistics(s, keys, args.softmax_scale_log2);

  const float inverse = rcp_approx_ftz_f32(statistics.sum);
#pragma unroll 4
  for (i32 key = lane_index(); key < keys; key += kWarpSize)
    st_global_f32(s + key, inverse * exponential(ld_weak_global_f32(s + key), statistics.largest, args.softmax_scale_log2));

  if (args.lse == nullptr || lane_index() != 0) return;
  constexpr float kLn2 = 0.693147180559945309f;
  const float lse = fma_rn_f32(statistics.largest, args.softmax_scale, lg2_approx_ftz_f32(statistics.sum) * kLn2);
  st_global_f32(args.lse + static_cast<i64>(tile.batch_head) * args.seq_q + tile.first_row + row, keys > 0 ? lse : negative_infinity());
}
//% include primitives/entry/${target}
