#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "runtime/emulator/device_memory.h"
#include "runtime/emulator/emulator_device.h"

namespace attune {

/// One launch on the emulator.
struct GridLaunch {
  void (*entry)(const void* arguments) = nullptr;  ///< runs one CUDA thread
  const void* arguments = nullptr;
  std::string kernel;  ///< its name, for messages
  std::uint32_t grid = 0;
  int threads = 0;  ///< of a CTA, a multiple of 32
  std::size_t shared_bytes = 0;
  int cluster = 1;           ///< CTAs of a cluster; the grid is a multiple of it
  bool async_proxy = false;  ///< whether the kernel has mbarriers, TMA and wgmma
  EmulatorOptions options;
};

/// Runs every CTA of the grid and returns when all have ended: the traffic that EmulatorTraffic speaks of. Throws
/// Error(emulator) when the kernel breaks a rule; CTAs that have not ended by then are abandoned.
EmulatorTraffic run_grid(const GridLaunch& launch, const MemoryMap& memory);

}  // namespace attune
