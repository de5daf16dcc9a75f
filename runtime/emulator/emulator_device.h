#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "runtime/device.h"

namespace attune {

/// When asynchronous copies take effect: at issue, or at the last legal moment (the destination holds NaN until then).
enum class AsyncMode { eager, lazy };
enum class ScheduleMode { round_robin, random };

struct EmulatorOptions {
  AsyncMode async = AsyncMode::eager;
  ScheduleMode schedule = ScheduleMode::round_robin;
  std::uint64_t seed = 0;   ///< of the random schedule
  int concurrent_ctas = 4;  ///< CTAs alive at once, interleaved
  int threads = 0;          ///< host threads that run groups of CTAs; 0: one per core
  /// A thread that waits for a value in global memory gives up when for so long it has not changed and no host thread
  /// has gone on.
  std::chrono::milliseconds patience{60'000};
};

/// A GPU for machines that have none: compiles the very same kernel text with the host compiler ($ATTUNE_HOST_COMPILER,
/// else c++) and runs it on the CPU, one fiber per CUDA thread. Checks what a GPU lets pass: misaligned and
/// out-of-bounds accesses, collectives that not all lanes reach, deadlocks, reads of memory that an asynchronous copy
/// has not filled. A broken rule is Error(emulator) with a sentence that names the threads. Says nothing about speed.
/// Compiled kernels are cached on disk like cubins.
std::shared_ptr<Device> make_emulator_device(const DeviceSpec& spec, const EmulatorOptions& options = {});

/// Bytes of global memory that kernels asked for by loads, cp.async, stores and reductions (written), each counted once
/// for each thread that asked. Copies by tensor maps are not counted.
struct EmulatorTraffic {
  std::uint64_t read_bytes = 0;
  std::uint64_t written_bytes = 0;
};

/// The traffic of all launches of an emulator device so far. Throws Error(internal) for any other device.
EmulatorTraffic traffic_of(const Device& emulator);

/// "async=lazy schedule=random(7)": for logs and error messages.
std::string to_string(const EmulatorOptions& options);

}  // namespace attune
