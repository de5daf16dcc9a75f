#pragma once

#include <optional>

#include "generator/config/kernel_config.h"
#include "generator/device/device_spec.h"
#include "generator/problem/attention_problem.h"

namespace attune {

/// A config that fits, of head dims for which these kernels were timed or lie between such; nothing for narrower heads.
/// The cost model chooses among the few that may be best, among the ways to take a group's heads and the parts of the
/// queries.
std::optional<KernelConfig> backward_sm90_default(const AttentionProblem& problem, const DeviceSpec& device);

}  // namespace attune
