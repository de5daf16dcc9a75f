#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "generator/plan/kernel_plan.h"
#include "generator/plan/shared_layout.h"
#include "generator/problem/attention_problem.h"
#include "generator/text/renderer.h"

namespace attune {

/// Tiles of a tensor of pairs in shared memory, of a block's queries and keys: panels as those of Q are, whose rows
/// have 32, 64 or 128 bytes, the span of a swizzle.
struct PairTile {
  Operand operand{};
  int element_bytes = 0;
  int panel_columns = 0, panels = 0;
};

/// Those of a problem's bias and attention mask; none of a kernel whose threads load the elements that they need.
class PairTiles {
 public:
  PairTiles() = default;
  PairTiles(const AttentionProblem& problem, int block_kv);

  const PairTile* begin() const { return tiles_.data(); }
  const PairTile* end() const { return tiles_.data() + count_; }
  bool any() const { return count_ > 0; }

  /// Adds buffers of tiles of so many rows.
  void add_to(SharedLayout* shared, int stages, int rows) const;
  /// How TMA copies a tile of so many rows of each of so many heads.
  void add_to(std::vector<TensorMapSpec>* maps, int rows, int heads) const;
  /// What wgmma/pair_tiles and what reads the tiles name; nothing of it is used where there are none.
  void bind(const AttentionProblem& problem, int stages, TemplateBindings* bindings) const;

 private:
  std::array<PairTile, 2> tiles_{};
  std::size_t count_ = 0;
};

}  // namespace attune
