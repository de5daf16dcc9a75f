#pragma once

#include "generator/config/cost_estimate.h"

namespace attune {

/// estimate_cost() of a feasible config of backward_sm90.
CostEstimate backward_sm90_cost(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device);

/// The number of early_statistics that was fastest where a config like this was timed (H200, NVRTC 13.0;
/// docs/notebook/backward_sm90.md): all where registers hold them. With 128 queries it hangs on what ptxas makes of it.
int usual_early_statistics(const AttentionProblem& problem, const KernelConfig& config);

}  // namespace attune
