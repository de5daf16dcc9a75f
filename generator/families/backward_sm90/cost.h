#pragma once

#include "generator/config/cost_estimate.h"

namespace attune {

/// estimate_cost() of a feasible config of backward_sm90.
CostEstimate backward_sm90_cost(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device);

/// Whether dk_first was faster where a config like this was timed (H200, NVRTC 13.0; docs/notebook/backward_sm90.md).
bool usual_dk_first(const AttentionProblem& problem, const KernelConfig& config);

/// The largest number of early_statistics that is worth a trial: all of 64 queries; of more as many as ptxas made fast
/// kernels of.
int most_early_statistics(const KernelConfig& config);

/// The number of early_statistics that was fastest where a config like this was timed, with its dk_first.
int usual_early_statistics(const AttentionProblem& problem, const KernelConfig& config);

}  // namespace attune
