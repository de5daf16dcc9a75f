#pragma once

#include "generator/config/kernel_config.h"
#include "generator/device/device_spec.h"
#include "generator/problem/attention_problem.h"

namespace attune {

/// The best forward config of family sm80 that is known without timing any. For a valid problem on a device of
/// capability 8.0 or newer; throws Error(unsupported) where nothing fits.
KernelConfig default_config_sm80(const AttentionProblem& problem, const DeviceSpec& device);

}  // namespace attune
