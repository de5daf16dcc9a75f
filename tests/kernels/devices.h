#pragma once

#include <memory>
#include <string>
#include <vector>

#include "attune/attention.h"
#include "generator/device/device_spec.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/emulator/emulator_device.h"

namespace attune::tests {

// The devices that must agree bit for bit: the emulator in all modes, or the same GPU twice.
struct Devices {
  std::vector<std::unique_ptr<AttentionRuntime>> runtimes;
  std::vector<std::string> names;

  static Devices emulators(const DeviceSpec& spec = find_device("h200")) {
    Devices devices;
    for (const AsyncMode async : {AsyncMode::eager, AsyncMode::lazy}) {
      for (const ScheduleMode schedule : {ScheduleMode::round_robin, ScheduleMode::random}) {
        const EmulatorOptions options{async, schedule, 40 + devices.names.size()};
        devices.runtimes.push_back(std::make_unique<AttentionRuntime>(make_emulator_device(spec, options)));
        devices.names.push_back(attune::to_string(options));
      }
    }
    return devices;
  }
  static Devices gpu() {
    Devices devices;
    for (const char* name : {"first run", "second run"}) {
      devices.runtimes.push_back(std::make_unique<AttentionRuntime>(open_cuda_device(0)));
      devices.names.push_back(name);
    }
    return devices;
  }
  const DeviceSpec& spec() const { return runtimes.front()->device()->spec(); }
};

}  // namespace attune::tests
