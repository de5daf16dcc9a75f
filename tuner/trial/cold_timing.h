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
  double warm_up_seconds = 0;  ///< of launches before the first sample: a cool GPU runs at clocks that it cannot keep
  double sample_seconds = 0.1;
  int min_samples = 5;
  double batch_microseconds = 50;  ///< shorter kernels: as many launches to a sample as fill this
  int cuda_ordinal = 0;            ///< whose clock is recorded
  /// If all of the first few samples, taken before the warm-up, are above this, they are all there will be: a GPU that
  /// is not warm yet is rather faster than later. 0: never.
  double hopeless_us = 0;
};

struct Timing {
  std::vector<double> samples_us;  ///< of one launch each
  std::vector<int> clocks_mhz;     ///< SM clock while each was taken, 0 if unknown
  std::string complaint;           ///< why there are none: all were taken under thermal or hardware slowdown
};

/// Kernel times by events on a CUDA device. Samples under thermal or hardware slowdown are discarded, those under the
/// power cap (the normal state of a loaded GPU) are not. Throws Error(driver).
Timing time_cold(const std::shared_ptr<Device>& device, const TimedWork& work, const TimingPlan& plan);

struct TurnsPlan {
  double seconds = 0.5;  ///< of GPU time for all works together
  int min_rounds = 15, max_rounds = 200;
  double batch_microseconds = 50;
  int cuda_ordinal = 0;
};

/// Times several works alternately (A B C, B C A, ...), one sample of each in a round, so that a drift of clocks or
/// heat meets all of them alike. The i-th samples of all works belong to one round; a round under thermal or hardware
/// slowdown is discarded whole. One Timing per work, in their order; all complain if there is no round. Throws
/// Error(driver).
std::vector<Timing> time_in_turns(const std::shared_ptr<Device>& device, const std::vector<TimedWork>& works,
                                  const TurnsPlan& plan);

}  // namespace attune
