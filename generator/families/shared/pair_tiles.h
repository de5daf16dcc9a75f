#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <vector>

#include "generator/families/kernel_family.h"
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

/// The config with tiles of tensors of pairs or without, as the cost model takes it to be faster, and with one stage
/// less of others where shared memory holds no more. One that has tiles keeps them, where the problem has such tensors.
KernelConfig with_pair_stages(const AttentionProblem& problem, const DeviceSpec& device, const KernelConfig& config);

/// How many stages of tiles a space offers: of a problem with tensors of pairs none and these, else none.
std::vector<int> pair_stage_choices(const AttentionProblem& problem, std::initializer_list<int> stages);

/// KernelFamily::adapt's last step: with_pair_stages(), and what to say of it.
void adapt_pair_stages(const Question& question, Adaptation* adaptation);

/// Clocks of an SM for the elements that tensors of pairs have for so many pairs, and bytes that they take from L2.
struct PairCost {
  double clocks = 0, l2_bytes = 0;
};
PairCost cost_of_pairs(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device,
                       double pairs);

/// Stages of tiles of tensors that the problem has not.
void check_pair_stages(const AttentionProblem& problem, const KernelConfig& config, Reasons* reasons);

}  // namespace attune
