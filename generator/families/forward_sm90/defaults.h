#pragma once

#include <optional>

#include "generator/config/kernel_config.h"
#include "generator/device/device_spec.h"
#include "generator/problem/attention_problem.h"

namespace attune {

/// Of default configs of both families that take maxima, in powers of two.
constexpr int kDefaultRescaleThreshold = 8;

/// The best config of family sm90 that is known without timing any for this problem; nothing where TMA cannot copy the
/// rows, where mma.sync is known to win, or on a GPU that is no Hopper. By exact lengths: of a dispatch class, its
/// first problem decides.
std::optional<KernelConfig> default_config_sm90(const AttentionProblem& problem, const DeviceSpec& device);

}  // namespace attune
