#include "generator/families/backward_sm90/bias.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "generator/families/shared/pair_tiles.h"
#include "generator/families/shared/wgmma.h"
#include "generator/families/shared/wgmma_shapes.h"
#include "generator/plan/shared_layout.h"
#include "generator/problem/element_type.h"
#include "generator/problem/operand_shape.h"
#include "generator/rounding.h"
#include "generator/text/attention_bindings.h"

namespace attune {
namespace {

constexpr int kTile = 128;  // queries and keys of a CTA
constexpr int kConsumers = kTile / kWarpgroupRows;
constexpr int kPairStages = 1;  // the bias stays for a tile, and the mask's next tile comes beside products
constexpr int kMostSlots = 6;
constexpr int kLoaderRegisters = 24, kSumsRegisters = kMostRegistersOfThread;  // of a thread that loads, and that sums

// Each slot has a full and an empty barrier, and so have the tiles of bias and mask.
constexpr std::size_t kBarriersOfSlot = 2, kOtherBarriers = 4;
std::size_t barrier_bytes(int slots) {
  return (kBarriersOfSlot * static_cast<std::size_t>(slots) + kOtherBarriers) * kMbarrierBytes;
}

// CTAs for each SM, one after the other on it, the last of which leave hardly any idle; each takes several tiles, so
// that it loads one beside the end of another.
constexpr int kCtasOfSm = 16;

struct BiasShape {
  PairTiles pair_tiles;
  int panel_columns = 0, slots = 0;
  SharedLayout shared;
};

BiasShape bias_shape(const AttentionProblem& problem, const DeviceSpec& device) {
  BiasShape shape;
  shape.pair_tiles = PairTiles(problem, kTile);
  shape.panel_columns = panel_columns(problem.head_dim);
  shape.pair_tiles.add_to(&shape.shared, kPairStages, kTile);
  const auto element_bytes = static_cast<std::size_t>(size_of(problem.dtype));
  const std::size_t slot_bytes = 2 * static_cast<std::size_t>(kTile * shape.panel_columns) * element_bytes;
  const std::size_t begin = round_up(shape.shared.bytes(), kSwizzledTileAlignment);
  const std::size_t left = static_cast<std::size_t>(device.shared_bytes_per_block) - begin - barrier_bytes(kMostSlots);
  shape.slots = std::min(kMostSlots, static_cast<int>(left / slot_bytes));
  shape.shared.add({"kSlotOffset", "Q and K, or dO and V", {shape.slots, 2, kTile, shape.panel_columns}, element_bytes},
                   kSwizzledTileAlignment);
  shape.shared.add({"kBarrierOffset", "barriers", {}, barrier_bytes(shape.slots)}, kMbarrierBytes);
  return shape;
}

Arguments bias_arguments(const AttentionProblem& problem) {
  Arguments fields = {TensorMap{Operand::q}, TensorMap{Operand::k}, TensorMap{Operand::v}, TensorMap{Operand::d_o},
                      Workspace{kStatistics}};
  append_pointers(&fields, {Operand::d_bias});
  append_strides(&fields, {Operand::d_bias});
  append(&fields, {Scalar::batch, Scalar::heads_q, Scalar::group_size, Scalar::seq_q, Scalar::seq_kv, Scalar::key_tiles,
                   Scalar::tiles, Scalar::bias_batch, Scalar::bias_heads, Scalar::bias_rows});
  append_lengths(&fields, problem);
  append_mask(&fields, problem);
  fields.push_back(Scalar::softmax_scale_log2);
  append_score(&fields, problem);
  append_dropout(&fields, problem);
  append_dropout_scale(&fields, problem);
  append_pair_maps(&fields, problem);
  return fields;
}

}  // namespace

KernelLaunch bias_sm90_launch(const AttentionProblem& problem, const DeviceSpec& device, int block_q,
                              StatisticsOrder order, KernelTarget target, TemplateBindings* bindings) {
  const BiasShape shape = bias_shape(problem, device);
  KernelLaunch launch;
  launch.tile_rows = TileRows::pairs;
  launch.rows_per_tile = kTile;
  launch.max_ctas = kCtasOfSm * device.sm_count;
  launch.threads = (kConsumers + 1) * kWarpgroupThreads;
  launch.shared_bytes = shape.shared.bytes();
  launch.arguments = ArgumentLayout::of(bias_arguments(problem));
  const int swizzle_bytes = size_of(problem.dtype) * shape.panel_columns;
  for (const Operand operand : {Operand::q, Operand::k, Operand::v, Operand::d_o}) {
    launch.tensor_maps.push_back({operand, shape.panel_columns, kTile, swizzle_bytes, 1, problem.has_used_lengths()});
  }
  shape.pair_tiles.add_to(&launch.tensor_maps, kTile, 1);

  bind_elements(problem, bindings);
  bind_head_dims(problem, bindings);
  bind_attention(problem, bindings);
  bind_exponent_words(problem, bindings);
  bind_dropout(problem, bindings);
  bindings->set("per_share", per_share(problem));
  bind_key_blocks(false, false, bindings);
  bindings->set("pair_queries", to_string(pair_queries_of(problem)));
  bindings->set("pair_keys", to_string(pair_keys_of(problem)));
  shape.pair_tiles.bind(problem, kPairStages, bindings);
  shape.shared.bind(bindings);
  const bool masked = problem.attention_mask != PairTensor::none;
  bindings->conditions["packed"] = false;
  bindings->conditions["looks_up_first"] = masked || problem.packed;
  bindings->set("kv_source", bindings->values.at("sequence") + "_tensor_map");
  bindings->set("block_q", kTile);
  bindings->set("block_kv", kTile);
  bindings->set("consumers", kConsumers);
  bindings->set("slots", shape.slots);
  bindings->set("barrier_bytes", static_cast<std::int64_t>(barrier_bytes(shape.slots)));
  bindings->set("panel_columns", shape.panel_columns);
  bindings->set("panels", ceil_div(problem.head_dim, shape.panel_columns));
  bindings->set("swizzle_mode", swizzle_mode(shape.panel_columns));
  bindings->set("producer_registers", kLoaderRegisters);
  bindings->set("consumer_registers", kSumsRegisters);
  bindings->set("statistics_rows", block_q);
  bindings->set("statistics_order", name_of(order));
  bindings->set("mask_words", masked ? ", and those of the attention mask" : "");
  bindings->set("sequence_of_pairs", masked ? "const Sequence& sequence" : "const Sequence& /*sequence*/");
  bindings->set("distance_of_row", problem.alibi ? "distance" : "/*distance*/");
  bindings->set("row_exponent",
                problem.alibi ? "fma_rn_f32(-slope, abs_f32(from_diagonal + static_cast<float>(distance)), -lse_log2)"
                              : "-lse_log2");
  bindings->set("is_hidden",
                std::string("kMasked && hidden[half].has(distance)") + (masked ? " || !pairs.attends(i)" : ""));
  bindings->lists["wgmma_shapes"] = wgmma_shapes({kTile}, target);
  return launch;
}

}  // namespace attune
