#pragma once

#include "generator/config/kernel_config.h"
#include "generator/device/device_spec.h"
#include "generator/problem/attention_problem.h"

namespace attune {

/// A config that fits, for any head dim. Heads of a group are apart, and queries in parts, where their common tiles
/// would leave SMs without work and the cost model finds that worth the sums; dQ has a kernel of its own where walks
/// are too short for sums, but not where queries see very many keys.
KernelConfig backward_sm80_default(const AttentionProblem& problem, const DeviceSpec& device);

}  // namespace attune
