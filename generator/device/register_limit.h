#pragma once

#include "generator/device/device_spec.h"

namespace attune {

/// Registers that a thread needs beside its accumulators, at the very least: addresses, counters, row maxima.
constexpr int kWorkingRegisters = 15;

/// The most registers that the compiler may give a thread so that `ctas` CTAs of `threads` threads fit an SM together:
/// 255, or less by the register file, which is handed out in steps of 8 registers a thread.
int register_limit(int threads, int ctas, const DeviceSpec& device);

}  // namespace attune
