#include "generator/families/backward_common/bias.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "generator/families/shared/chunk_swizzle.h"
#include "generator/families/shared/rows.h"
#include "generator/plan/shared_layout.h"
#include "generator/text/attention_bindings.h"

namespace attune {
namespace {

constexpr int kTiles[] = {64, 32};  // queries and keys of a CTA: the first whose tiles of Q, dO, K and V fit
constexpr int kWarpRows = 16, kLanes = 32;

std::size_t tile_bytes(const AttentionProblem& problem, int rows) {
  return static_cast<std::size_t>(rows * problem.head_dim * size_of(problem.dtype));
}

int tile_rows(const AttentionProblem& problem, const DeviceSpec& device) {
  for (const int rows : kTiles) {
    if (4 * tile_bytes(problem, rows) <= static_cast<std::size_t>(device.shared_bytes_per_block)) return rows;
  }
  return kTiles[1];
}

}  // namespace

KernelLaunch bias_launch(const AttentionProblem& problem, const DeviceSpec& device, int block_q, StatisticsOrder order,
                         TemplateBindings* bindings) {
  const int rows = tile_rows(problem, device);
  const bool twice = 8 * tile_bytes(problem, rows) <= static_cast<std::size_t>(device.shared_bytes_per_block);
  const int stages = twice ? 2 : 1;
  SharedLayout shared;
  for (const auto& [name, label] : {std::pair("kQOffset", "Q"), std::pair("kDoOffset", "dO"),
                                    std::pair("kKOffset", "K"), std::pair("kVOffset", "V")})
    shared.add({name, label, {stages, rows, problem.head_dim}, static_cast<std::size_t>(size_of(problem.dtype))}, 128);

  KernelLaunch launch;
  launch.tile_rows = TileRows::pairs;
  launch.rows_per_tile = rows;
  launch.threads = rows / kWarpRows * kLanes;
  launch.shared_bytes = shared.bytes();
  Arguments fields;
  append_pointers(&fields, {Operand::q, Operand::k, Operand::v, Operand::d_o});
  append_strides(&fields, {Operand::q, Operand::k, Operand::v, Operand::d_o});
  fields.push_back(Workspace{kStatistics});
  append_pointers(&fields, {Operand::d_bias});
  append_strides(&fields, {Operand::d_bias});
  append(&fields, {Scalar::batch, Scalar::heads_q, Scalar::group_size, Scalar::seq_q, Scalar::seq_kv, Scalar::key_tiles,
                   Scalar::bias_batch, Scalar::bias_heads, Scalar::bias_rows});
  append_lengths(&fields, problem);
  append_mask(&fields, problem);
  fields.push_back(Scalar::softmax_scale_log2);
  append_score(&fields, problem);
  append_dropout(&fields, problem);
  append_dropout_scale(&fields, problem);
  launch.arguments = ArgumentLayout::of(std::move(fields));

  bind_elements(problem, bindings);
  bind_head_dims(problem, bindings);
  bind_attention(problem, bindings);
  bind_exponent_terms(problem, bindings);
  bind_dropout(problem, bindings);
  bindings->set("per_share", per_share(problem));
  bind_terms_of_pair(problem, bindings);
  bind_key_blocks(false, false, bindings);
  bindings->set("pair_queries", to_string(pair_queries_of(problem)));
  bindings->set("pair_keys", to_string(pair_keys_of(problem)));
  const ElementFacts& element = facts_of(operand_shape(problem, Operand::bias).element);
  const ChunkSwizzle swizzle = chunk_swizzle(problem.head_dim);
  bindings->set("threads", launch.threads);
  bindings->set("stages", stages);
  bindings->set("rows_per_tile", rows);
  bindings->set("statistics_rows", block_q);
  bindings->set("statistics_order", name_of(order));
  bindings->set("row_bytes", static_cast<std::int64_t>(tile_bytes(problem, 1)));
  bindings->set("swizzle_mask", swizzle.mask);
  bindings->set("swizzle_shift", swizzle.shift);
  bindings->set("chunk_access", chunk_access(problem));
  bindings->set("row_lanes", row_lanes(problem));
  bindings->set("store_bias", element.bytes == 4 ? std::string("st_global_f32(reinterpret_cast<float*>(to), x)")
                                                 : "st_global_b16(to, static_cast<u16>(cvt_rn_" +
                                                       std::string(element.ptx) + "x2_f32(0.0f, x)))");
  shared.bind(bindings);
  return launch;
}

}  // namespace attune
