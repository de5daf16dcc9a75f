#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "generator/config/cost_estimate.h"
#include "generator/config/kernel_config.h"
#include "generator/device/device_spec.h"
#include "generator/problem/attention_problem.h"

namespace attune {

/// A member of the config space: feasible with its estimate, or rejected with the reasons.
struct Candidate {
  KernelConfig config;
  std::vector<std::string> reasons;  ///< why it is infeasible; empty if it is feasible
  CostEstimate cost;                 ///< of a feasible one
  bool feasible() const { return reasons.empty(); }
};

/// How much of the space is meant.
enum class SpaceExtent {
  whole,
  /// A few hundred configs (of a backward problem up to 300) that cover the range of tiles, warps, stages, places
  /// of Q and orders of tiles in coarser steps, the other fields at the value that serves most: small enough to be
  /// searched exhaustively.
  reduced,
};
std::string_view to_string(SpaceExtent extent);  ///< "whole", "reduced"
std::optional<SpaceExtent> parse_space_extent(std::string_view text);

/// Every combination of the tunable fields for this problem and device, rejected ones included: feasible candidates
/// first, in the cost model's order (ties by canonical text), then rejected ones by canonical text. At least 100
/// feasible ones of the whole space of a forward problem for D = 64 and 128. The reduced space is a part of the whole
/// one; the default config is in both.
std::vector<Candidate> config_space(const AttentionProblem& problem, const DeviceSpec& device,
                                    SpaceExtent extent = SpaceExtent::whole);

}  // namespace attune
