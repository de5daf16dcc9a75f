#pragma once

#include "generator/device/device_spec.h"
#include "runtime/cuda/cuda_driver.h"

namespace attune {

/// The known facts of a GPU's model, or those of its architecture; what the driver tells about this very GPU goes
/// before both. Throws Error(driver).
DeviceSpec spec_of(const CudaDriver& driver, CUdevice device);

}  // namespace attune
