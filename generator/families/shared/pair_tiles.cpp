#include "generator/families/shared/pair_tiles.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>

#include "generator/families/shared/wgmma.h"
#include "generator/generate.h"
#include "generator/plan/tensor_strides.h"
#include "generator/problem/element_type.h"
#include "generator/problem/operand_shape.h"
#include "generator/rounding.h"

namespace attune {
namespace {

// With the widest panels of which at most a quarter of a row's bytes are more than the keys of a step need.
PairTile tile_of(const AttentionProblem& problem, Operand operand, int block_kv) {
  constexpr int kWidest = 128, kNarrowest = 32;  // bytes
  PairTile tile{.operand = operand, .element_bytes = size_of(operand_shape(problem, operand).element)};
  const int bytes = block_kv * tile.element_bytes;
  int panel_bytes = kWidest;
  while (panel_bytes > kNarrowest && 4 * round_up(bytes, panel_bytes) > 5 * bytes) panel_bytes /= 2;
  tile.panel_columns = panel_bytes / tile.element_bytes;
  tile.panels = ceil_div(bytes, panel_bytes);
  return tile;
}

}  // namespace

PairTiles::PairTiles(const AttentionProblem& problem, int block_kv) {
  for (const Operand operand : term_inputs_of(problem))
    if (is_of_pairs(operand)) tiles_[count_++] = tile_of(problem, operand, block_kv);
}

void PairTiles::add_to(SharedLayout* shared, int stages, int rows) const {
  for (const PairTile& tile : *this) {
    const bool bias = tile.operand == Operand::bias;
    shared->add({bias ? "kBiasOffset" : "kAttentionMaskOffset",
                 bias ? "bias" : "attention mask",
                 {stages, tile.panels, rows, tile.panel_columns},
                 static_cast<std::size_t>(tile.element_bytes)},
                kSwizzledTileAlignment);
  }
}

void PairTiles::add_to(std::vector<TensorMapSpec>* maps, int rows, int heads) const {
  for (const PairTile& tile : *this)
    maps->push_back({tile.operand, tile.panel_columns, rows, tile.element_bytes * tile.panel_columns, heads, false});
}

void PairTiles::bind(const AttentionProblem& problem, int stages, TemplateBindings* bindings) const {
  const bool biased = problem.bias != PairTensor::none, masked = problem.attention_mask != PairTensor::none;
  const ElementFacts& element = facts_of(operand_shape(problem, Operand::bias).element);
  const bool by_matrices = biased && element.bytes == 2;  // ldmatrix reads 16-bit elements
  auto& operands = bindings->lists["pair_operands"];
  for (const PairTile& tile : *this) {
    operands.push_back({{"name", std::string(identifier(tile.operand))},
                        {"constant", tile.operand == Operand::bias ? "Bias" : "AttentionMask"},
                        {"bytes", std::to_string(tile.element_bytes)},
                        {"panel_columns", std::to_string(tile.panel_columns)},
                        {"panels", std::to_string(tile.panels)}});
  }
  bindings->conditions["pair_tiles"] = any();
  bindings->set("pair_stages", stages);
  bindings->set("bias_type", std::string(element.ptx));
  bindings->conditions["bias_by_matrices"] = by_matrices;
  bindings->conditions["bias_by_rows"] = biased && !by_matrices;
  bindings->conditions["pairs_by_rows"] = masked || (biased && !by_matrices);
}

KernelConfig with_pair_stages(const AttentionProblem& problem, const DeviceSpec& device, const KernelConfig& config) {
  KernelConfig best = config;
  if (!problem.has_pair_tensors()) best.pair_stages = 0;
  if (!problem.has_pair_tensors() || config.pair_stages > 0) return best;
  double least = std::numeric_limits<double>::infinity();
  const auto consider = [&](const KernelConfig& choice) {
    if (!infeasibility(problem, choice, device).empty()) return;
    const double time = estimate_cost(problem, choice, device).microseconds;
    if (time >= least) return;
    best = choice;
    least = time;
  };
  consider(config);
  for (int stages = config.stages; stages >= std::max(1, config.stages - 1); --stages) {
    KernelConfig choice = config;
    choice.stages = stages;
    for (const int pair_stages : {1, 2, 3, 4}) {
      choice.pair_stages = pair_stages;
      consider(choice);
    }
  }
  return best;
}

std::vector<int> pair_stage_choices(const AttentionProblem& problem, std::initializer_list<int> stages) {
  std::vector<int> choices = {0};
  if (problem.has_pair_tensors()) choices.insert(choices.end(), stages);
  return choices;
}

void adapt_pair_stages(const Question& question, Adaptation* adaptation) {
  const KernelConfig given = adaptation->config;
  adaptation->config = with_pair_stages(question.problem, question.device, given);
  const KernelConfig& config = adaptation->config;
  if (config == given) return;
  adaptation->changes.push_back(config.pair_stages == 0 ? "without pst, which only a bias or an attention mask has"
                                                        : fmt::format("with st{} pst{}, for tiles of tensors of pairs",
                                                                      config.stages, config.pair_stages));
}

PairCost cost_of_pairs(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device,
                       double pairs) {
  // A warp's load of 32 elements from global memory touches eight rows, and the L1 takes one in a clock. Those that
  // start anywhere come into tiles by such loads, and go on as others do.
  constexpr double kClocksOfLoad = 8.0 / 32, kClocksOfUnalignedTile = 2 * kClocksOfLoad;
  constexpr double kInstructions = 2, kSharedBytesPerClock = 128;
  PairCost cost;
  for (const Operand operand : term_inputs_of(problem)) {
    if (!is_of_pairs(operand)) continue;
    const OperandShape shape = operand_shape(problem, operand);
    const double bytes = size_of(shape.element);
    if (config.pair_stages == 0) {
      cost.clocks += pairs * kClocksOfLoad;
      continue;
    }
    cost.clocks += pairs * (kInstructions / device.alu_per_clock + bytes / kSharedBytesPerClock);
    if (fits_tensor_map(shape, packed_strides(problem, operand)))
      cost.l2_bytes += pairs * bytes;
    else
      cost.clocks += pairs * kClocksOfUnalignedTile;
  }
  return cost;
}

void check_pair_stages(const AttentionProblem& problem, const KernelConfig& config, Reasons* reasons) {
  if (config.pair_stages == 0 || problem.has_pair_tensors()) return;
  reasons->push_back(fmt::format("pst{}: the problem has neither a bias nor an attention mask; leave the word out",
                                 config.pair_stages));
}

}  // namespace attune
