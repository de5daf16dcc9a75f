#pragma once

#include "generator/config/cost_estimate.h"

namespace attune {

/// estimate_cost() of a feasible config of forward_sm80.
CostEstimate forward_sm80_cost(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device);

}  // namespace attune
