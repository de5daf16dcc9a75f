#pragma once

#include "generator/families/shared/cost_model.h"

namespace attune {

/// estimate_cost() of a feasible config of family sm90.
CostEstimate estimate_cost_sm90(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device);

}  // namespace attune
