#pragma once

#include <string>
#include <vector>

#include "generator/config/kernel_config.h"
#include "generator/device/device_spec.h"
#include "generator/problem/attention_problem.h"

namespace attune {

/// infeasibility() of a backward problem and a config of the sm80 family.
std::vector<std::string> backward_sm80_infeasibility(const AttentionProblem& problem, const KernelConfig& config,
                                                     const DeviceSpec& device);

}  // namespace attune
