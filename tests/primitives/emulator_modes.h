#pragma once

#include <vector>

#include "runtime/emulator/emulator_device.h"

namespace attune::tests {

/// Every combination of asynchrony and schedule, the random one with two seeds.
inline std::vector<EmulatorOptions> emulator_modes() {
  std::vector<EmulatorOptions> modes;
  for (const AsyncMode async : {AsyncMode::eager, AsyncMode::lazy}) {
    EmulatorOptions options;
    options.async = async;
    modes.push_back(options);
    for (const std::uint64_t seed : {1u, 2u}) {
      options.schedule = ScheduleMode::random;
      options.seed = seed;
      modes.push_back(options);
    }
  }
  return modes;
}

}  // namespace attune::tests
