#pragma once

#include "generator/device/device_spec.h"

namespace attune {

/// Whether a launch may begin while the one before it runs, and wait for it itself: compute capability 9.0 and newer.
inline bool has_programmatic_launch(const DeviceSpec& device) { return device.compute_major >= 9; }

}  // namespace attune
