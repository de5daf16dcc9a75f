#pragma once

#include <vector>

#include "generator/config/kernel_config.h"
#include "generator/device/device_spec.h"
#include "generator/problem/attention_problem.h"

namespace attune {

/// Every combination of the fields that backward kernels know for this problem and device, infeasible ones included.
std::vector<KernelConfig> backward_configs(const AttentionProblem& problem, const DeviceSpec& device);

/// Whether one of them is in SpaceExtent::reduced, too.
bool is_of_reduced_backward_space(const AttentionProblem& problem, const KernelConfig& config);

}  // namespace attune
