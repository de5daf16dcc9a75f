#pragma once

#include "generator/plan/kernel_plan.h"
#include "runtime/device.h"
#include "tests/case_draw.h"

namespace attune::tests {

/// What NVRTC says of a kernel; each text is compiled once. For one thread.
const KernelResources& compiled_resources(const KernelLaunch& launch);

/// A draw from a table of kernels that NVRTC compiles, which takes it about a second for each.
inline CaseDraw compiled_draw() { return CaseDraw(7, 1); }

}  // namespace attune::tests
