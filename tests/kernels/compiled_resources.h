#pragma once

#include "generator/plan/kernel_plan.h"
#include "runtime/device.h"
#include "tests/kernels/table_share.h"

namespace attune::tests {

/// What NVRTC says of a kernel; each text is compiled once. For one thread.
const KernelResources& compiled_resources(const KernelLaunch& launch);

}  // namespace attune::tests
