#pragma once

#include <string>
#include <vector>

#include "generator/attention_problem.h"
#include "generator/cost_model.h"
#include "generator/device_spec.h"
#include "generator/kernel_config.h"

namespace attune {

/// A member of the config space: feasible with its estimate, or rejected with the reasons.
struct Candidate {
  KernelConfig config;
  std::vector<std::string> reasons;  ///< why it is infeasible; empty if it is feasible
  CostEstimate cost;                 ///< of a feasible one
  bool feasible() const { return reasons.empty(); }
};

/// Every combination of the tunable fields for this problem and device, rejected ones included: feasible candidates
/// first, in the cost model's order (ties by canonical text), then rejected ones by canonical text. At least 100
/// feasible ones for D = 64 and 128.
std::vector<Candidate> config_space(const AttentionProblem& problem, const DeviceSpec& device);

}  // namespace attune
