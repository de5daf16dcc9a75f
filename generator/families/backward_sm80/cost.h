#pragma once

#include "generator/config/cost_estimate.h"

namespace attune {

/// estimate_cost() of a feasible config of a backward problem: the sum over the plan's launches. Registers are those of
/// the launch that takes most, CTAs on an SM and waves those of the kernel of dK and dV. Fitted on an H200: 5 % off in
/// the mean there (docs/notebook/backward_sm80.md says what it ranks well and badly).
CostEstimate backward_sm80_cost(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device);

}  // namespace attune
