#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "generator/config/config_space.h"

namespace attune {

/// How far a search goes.
struct SearchLimits {
  int model_top = 10;  ///< of the cost model's order, in the opening
  int patience = 0;    ///< trials after the opening without an improvement that end the search; 0: the whole space
};

/// Which config to try next. A value that knows no device and no database: the same space, seeds and times give the
/// same proposals.
///
///   1. the opening: the seeds in their order (the default config first), then the first of the cost model's order.
///      Configs with the same tile, warps, stages and tile scheduler (ConfigField::sets_apart) take one place there:
///      their times lie close together, and the moves find the others;
///   2. moves of one field from the fastest, then from others within kReach of it: small steps first, then in the cost
///      model's order;
///   3. the rest in the cost model's order.
///
/// The search ends with the space, or after `patience` trials in a row that did not improve on the best by
/// kImprovement, counted from the end of the opening.
class Searcher {
 public:
  static constexpr double kReach = 1.05;
  static constexpr double kImprovement = 0.995;

  /// `space`: feasible candidates in the cost model's order. `seeds`: configs; those that are not in the space are left
  /// out.
  Searcher(std::vector<Candidate> space, const std::vector<KernelConfig>& seeds, const SearchLimits& limits);

  /// Index in the space of the next config to try, each once; nothing if the search has ended.
  std::optional<std::size_t> next();
  /// What came of a proposal: its time in any unit; 0 if it failed.
  void tell(std::size_t index, double time);

  /// The next `count` proposals if none of those to come improves on the best, regardless of patience: what is worth
  /// compiling.
  std::vector<std::size_t> upcoming(std::size_t count) const;

  /// How many trials the search will have taken if none of those to come improves on the best.
  std::size_t planned() const;

  /// Why the search has ended, "space exhausted" or "patience"; empty before.
  std::string_view ended_by() const { return ended_by_; }
  const std::vector<Candidate>& space() const { return *space_; }

 private:
  std::optional<std::size_t> propose();
  std::optional<std::size_t> move_from(std::size_t index) const;

  // The configs one move away from each config that moves were made from, in the order in which they are proposed. They
  // are found once, for a space may hold a hundred thousand.
  using Neighbours = std::map<std::size_t, std::vector<std::size_t>>;
  const std::vector<std::size_t>& neighbours_of(std::size_t index) const;

  std::shared_ptr<const std::vector<Candidate>> space_;  // shared by copies, as are the neighbours
  std::shared_ptr<Neighbours> neighbours_ = std::make_shared<Neighbours>();
  SearchLimits limits_;
  std::vector<std::size_t> opening_;
  std::vector<bool> proposed_;
  std::vector<std::pair<double, std::size_t>> times_;  // of those that succeeded, rising
  double mark_ = 0;                                    // the time that the next improvement is measured against
  int told_ = 0, without_improvement_ = 0;
  std::string_view ended_by_;
};

/// Whether two configs differ in one choice: the fields of one ConfigField::move, the number of warps at the same rows
/// a warp, or how many warps share keys at the same keys a warp.
bool one_move_apart(const KernelConfig& a, const KernelConfig& b);

/// For each tile that FlashAttention-2 (mma.sync) and FlashAttention-3 (wgmma) ship for this pass and head dim, the
/// member of the space with this tile that the cost model likes best; none if the space has none.
std::vector<KernelConfig> published_seeds(const AttentionProblem& problem, const std::vector<Candidate>& space);

}  // namespace attune
