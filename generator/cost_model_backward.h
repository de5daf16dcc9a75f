#pragma once

#include "generator/cost_model.h"

namespace attune {

/// estimate_cost() of a feasible config of a backward problem: the sum over the plan's launches. Registers are those of
/// the launch that takes most, CTAs on an SM and waves those of the kernel of dK and dV. Its coefficients are not
/// fitted to measurements yet: it orders the first candidates, and says little about how far apart they are.
CostEstimate estimate_cost_backward(const AttentionProblem& problem, const KernelConfig& config,
                                    const DeviceSpec& device);

}  // namespace attune
