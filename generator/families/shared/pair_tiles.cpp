#include "generator/families/shared/pair_tiles.h"

#include <string>

#include "generator/families/shared/wgmma.h"
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
  bindings->set("pair_stages", stages);
  bindings->set("bias_type", std::string(element.ptx));
  bindings->conditions["bias_by_matrices"] = by_matrices;
  bindings->conditions["bias_by_rows"] = biased && !by_matrices;
  bindings->conditions["pairs_by_rows"] = masked || (biased && !by_matrices);
}

}  // namespace attune
