#pragma once

#include "generator/config/kernel_config.h"
#include "generator/device/device_spec.h"
#include "generator/problem/attention_problem.h"

namespace attune {

/// The best forward config of forward_sm80 that is known without timing any. For a valid problem on a device of
/// capability 8.0 or newer; throws Error(unsupported) where nothing fits.
KernelConfig forward_sm80_default(const AttentionProblem& problem, const DeviceSpec& device);

}  // namespace attune
