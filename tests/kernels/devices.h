#pragma once

#include <memory>
#include <string>
#include <vector>

#include "attune/attention.h"
#include "generator/device/device_spec.h"
#include "generator/generate.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/emulator/emulator_device.h"
#include "tests/case_draw.h"
#include "tests/catch.h"

namespace attune::tests {

// The devices that must agree bit for bit: the emulator in all modes, of whose cases CI draws some, or the same GPU
// twice.
struct Devices {
  std::vector<std::unique_ptr<AttentionRuntime>> runtimes;
  std::vector<std::string> names;
  CaseDraw draw;  // which cases run

  // Whether the next case runs. That its config fits the problem is asked of each case, so that a table which holds one
  // that does not is found wherever it is read, and not first where it runs whole.
  bool takes_next(const AttentionProblem& problem, const KernelConfig& config) {
    CHECK(infeasibility(problem, config, spec()) == std::vector<std::string>());
    return draw.takes_next();
  }

  // Those that the next case runs on: the first one and, by turns, one of the others; all with ATTUNE_TEST_EXTENT=all.
  std::vector<std::size_t> of_next_case() {
    std::vector<std::size_t> chosen;
    const std::size_t other = runtimes.size() > 1 ? 1 + run_++ % (runtimes.size() - 1) : 0;
    for (std::size_t i = 0; i < runtimes.size(); ++i) {
      if (i == 0 || i == other || CaseDraw::takes_all()) chosen.push_back(i);
    }
    return chosen;
  }

  static Devices emulators(const DeviceSpec& spec = find_device("h200")) {
    Devices devices;
    devices.draw = CaseDraw(6);
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

 private:
  std::size_t run_ = 0;  // cases
};

}  // namespace attune::tests
