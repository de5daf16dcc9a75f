#pragma once

#include <optional>

#include "generator/config/kernel_config.h"
#include "generator/device/device_spec.h"
#include "generator/problem/attention_problem.h"

namespace attune {

/// The best config of forward_sm90 that is known without timing any for this problem; nothing where mma.sync is known
/// to win, or on a GPU or rows that the family does not support. By exact lengths: of a dispatch class, its first
/// problem decides.
std::optional<KernelConfig> forward_sm90_default(const AttentionProblem& problem, const DeviceSpec& device);

}  // namespace attune
