#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/device.h"

namespace attune {

/// The work of a timing, enqueued on the device's default stream.
struct TimedWork {
  /// One launch of the kernel; `index` rises from launch to launch and chooses the copy of inputs and outputs, so that
  /// none of them is in the L2 when its turn comes.
  std::function<void(std::uint64_t index)> launch;
  /// One launch of the same code that keeps the GPU busy `factor` times as long or so, without filling the L2: what the
  /// host hides behind while it enqueues launches that are shorter than the enqueuing.
  std::function<void(std::int64_t factor)> occupy;
  std::int64_t max_factor = 1;
};

struct TimingPlan {
  double sample_seconds = 0.1;
  int min_samples = 5;
  double batch_microseconds = 50;  ///< shorter kernels: as many launches to a sample as fill this
  int cuda_ordinal = 0;            ///< whose clock is recorded
};

struct Timing {
  std::vector<double> samples_us;  ///< of one launch each
  std::vector<int> clocks_mhz;     ///< SM clock while each was taken, 0 if unknown
  std::string complaint;           ///< why there are none: all were taken under thermal or hardware slowdown
};

/// Kernel times by events on a CUDA device. Samples under thermal or hardware slowdown are discarded, those under the
/// power cap (the normal state of a loaded GPU) are not. Throws Error(driver).
Timing time_cold(const std::shared_ptr<Device>& device, const TimedWork& work, const TimingPlan& plan);

}  // namespace attune
