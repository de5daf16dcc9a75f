#pragma once

#include "generator/config/cost_estimate.h"

namespace attune {

/// estimate_cost() of a feasible config of backward_sm90.
CostEstimate backward_sm90_cost(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device);

}  // namespace attune
