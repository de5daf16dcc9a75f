#include "tuner/cold_timing.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "runtime/cuda/cuda_device.h"

namespace attune {
namespace {

constexpr int kLaunchesInFlight = 256;  // well below the driver's queue, where enqueuing begins to wait for the GPU
constexpr int kSamplesInFlight = 32;
constexpr int kMaxSamples = 400;
constexpr int kMaxLaunchesPerSample = 100;
constexpr int kProbeLaunches = 16;
constexpr double kEventMicroseconds = 2;  // of host time, for the two events of a sample
constexpr double kHeadStart = 1.5;        // the GPU is kept busy so much longer than the host is expected to need

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

class ColdTimer {
 public:
  ColdTimer(const std::shared_ptr<Device>& device, const TimedWork& work, const TimingPlan& plan)
      : device_(device), work_(work), plan_(plan), probe_(device, nullptr) {}

  Timing run() {
    probe();
    const int per_sample =
        launch_us_ >= plan_.batch_microseconds
            ? 1
            : std::clamp(static_cast<int>(std::ceil(plan_.batch_microseconds / launch_us_)), 1, kMaxLaunchesPerSample);
    const int samples = std::clamp(static_cast<int>(plan_.sample_seconds * 1e6 / (per_sample * launch_us_)),
                                   std::max(plan_.min_samples, 1), std::max(plan_.min_samples, kMaxSamples));
    const int per_round = std::min({samples, kSamplesInFlight, std::max(1, kLaunchesInFlight / per_sample)});
    const std::int64_t factor = find_factor(per_round, per_sample);

    for (int i = 0; i < per_round; ++i) timers_.push_back(std::make_unique<CudaTimer>(device_, nullptr));
    Timing timing;
    const int rounds = (samples + per_round - 1) / per_round;
    constexpr int kPatience = 4;  // rounds tried for each that is wanted
    for (int round = 0; round < kPatience * rounds && static_cast<int>(timing.samples_us.size()) < samples; ++round) {
      run_round(per_round, per_sample, factor, timing);
    }
    if (timing.samples_us.empty())
      timing.complaint = "no sample was taken without " + throttle_ + "; let the GPU cool down";
    return timing;
  }

 private:
  // The time of a launch, on the GPU or on the host, whichever is longer.
  void probe() {
    for (int i = 0; i < 3; ++i) work_.launch(index_++);
    device_->synchronize(nullptr);
    probe_.start();
    const auto begin = std::chrono::steady_clock::now();
    work_.launch(index_++);
    probe_.stop();
    launch_us_ = probe_.microseconds();
    host_us_ = 1e6 * seconds_since(begin);
    if (launch_us_ >= plan_.batch_microseconds) return;
    probe_.start();
    const auto enqueue = std::chrono::steady_clock::now();
    for (int i = 0; i < kProbeLaunches; ++i) work_.launch(index_++);
    host_us_ = 1e6 * seconds_since(enqueue) / kProbeLaunches;
    probe_.stop();
    launch_us_ = std::max(probe_.microseconds() / kProbeLaunches, 0.5);
  }

  // How much work in front of a round covers its enqueuing; 0 if the kernels are longer than that anyway.
  std::int64_t find_factor(int per_round, int per_sample) {
    if (launch_us_ >= plan_.batch_microseconds) return 0;
    const double wanted_us = kHeadStart * per_round * (per_sample * host_us_ + kEventMicroseconds);
    std::int64_t factor = 1;
    while (factor < work_.max_factor) {
      probe_.start();
      work_.occupy(factor);
      probe_.stop();
      const double occupied_us = probe_.microseconds();
      if (occupied_us >= wanted_us) break;
      factor = std::min(work_.max_factor, factor * 2);
    }
    return factor;
  }

  void run_round(int per_round, int per_sample, std::int64_t factor, Timing& timing) {
    if (factor > 0) work_.occupy(factor);
    work_.launch(index_++);  // the code is in the instruction caches, and the queue is not empty
    for (int i = 0; i < per_round; ++i) {
      timers_[static_cast<std::size_t>(i)]->start();
      for (int launch = 0; launch < per_sample; ++launch) work_.launch(index_++);
      timers_[static_cast<std::size_t>(i)]->stop();
    }
    const ClockSample clock = sample_clock(plan_.cuda_ordinal);
    device_->synchronize(nullptr);
    if (clock.throttle == "thermal" || clock.throttle == "hardware slowdown") {
      throttle_ = clock.throttle == "thermal" ? "thermal slowdown" : clock.throttle;
      return;
    }
    for (int i = 0; i < per_round; ++i) {
      timing.samples_us.push_back(timers_[static_cast<std::size_t>(i)]->microseconds() / per_sample);
      timing.clocks_mhz.push_back(clock.sm_mhz);
    }
  }

  const std::shared_ptr<Device>& device_;
  const TimedWork& work_;
  const TimingPlan& plan_;
  CudaTimer probe_;
  std::vector<std::unique_ptr<CudaTimer>> timers_;
  std::uint64_t index_ = 0;
  double launch_us_ = 0, host_us_ = 0;
  std::string throttle_;
};

}  // namespace

Timing time_cold(const std::shared_ptr<Device>& device, const TimedWork& work, const TimingPlan& plan) {
  return ColdTimer(device, work, plan).run();
}

}  // namespace attune
