#include "tuner/trial/cold_timing.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "generator/rounding.h"
#include "runtime/cuda/cuda_device.h"

namespace attune {
namespace {

constexpr int kLaunchesInFlight = 256;  // well below the driver's queue, where enqueuing begins to wait for the GPU
constexpr int kSamplesInFlight = 32;
constexpr int kMaxSamples = 200;
constexpr int kMaxLaunchesPerSample = 100;
constexpr int kProbeLaunches = 16;
constexpr double kEventMicroseconds = 2;  // of host time, for the two events of a sample
constexpr double kHeadStart = 1.5;        // the GPU is kept busy so much longer than the host is expected to need

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

using Timers = std::vector<std::unique_ptr<CudaTimer>>;

Timers make_timers(const std::shared_ptr<Device>& device, std::size_t count) {
  Timers timers;
  for (std::size_t i = 0; i < count; ++i) timers.push_back(std::make_unique<CudaTimer>(device, nullptr));
  return timers;
}

// One work on its way through a timing, and how long a launch of it takes. `index` counts the launches of all works
// that are timed together: they share the copies of the inputs, and what one has just read is not cold for the next.
class Runner {
 public:
  Runner(const std::shared_ptr<Device>& device, const TimedWork& work, double batch_microseconds, std::uint64_t& index)
      : device_(device), work_(work), batch_us_(batch_microseconds), index_(index), probe_(device, nullptr) {
    probe();
    if (launch_us_ < batch_us_)
      per_sample_ = std::clamp(static_cast<int>(std::ceil(batch_us_ / launch_us_)), 1, kMaxLaunchesPerSample);
  }

  double sample_us() const { return per_sample_ * launch_us_; }
  int per_sample() const { return per_sample_; }

  // Keeps the GPU busy while `samples` samples are enqueued behind, and leaves the code in the instruction caches.
  void lead(int samples) {
    if (leading_samples_ != samples) {
      factor_ = find_factor(samples);
      leading_samples_ = samples;
    }
    if (factor_ > 0) work_.occupy(factor_);
    work_.launch(index_++);
  }
  void sample(CudaTimer& timer) {
    timer.start();
    for (int launch = 0; launch < per_sample_; ++launch) work_.launch(index_++);
    timer.stop();
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
    if (launch_us_ >= batch_us_) return;
    probe_.start();
    const auto enqueue = std::chrono::steady_clock::now();
    for (int i = 0; i < kProbeLaunches; ++i) work_.launch(index_++);
    host_us_ = 1e6 * seconds_since(enqueue) / kProbeLaunches;
    probe_.stop();
    launch_us_ = std::max(probe_.microseconds() / kProbeLaunches, 0.5);
  }

  // How much work in front of the samples covers their enqueuing; 0 if the kernels are longer than that anyway.
  std::int64_t find_factor(int samples) {
    if (launch_us_ >= batch_us_) return 0;
    const double wanted_us = kHeadStart * samples * (per_sample_ * host_us_ + kEventMicroseconds);
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

  const std::shared_ptr<Device>& device_;
  const TimedWork& work_;
  const double batch_us_;
  std::uint64_t& index_;
  CudaTimer probe_;
  double launch_us_ = 0, host_us_ = 0;
  int per_sample_ = 1;
  int leading_samples_ = 0;
  std::int64_t factor_ = 0;
};

// Samples taken while the GPU slowed itself down are none.
class SlowdownWatch {
 public:
  explicit SlowdownWatch(int cuda_ordinal) : cuda_ordinal_(cuda_ordinal) {}
  // Looks while the samples are under way. The clock in MHz, 0 if unknown.
  int look() {
    const ClockSample clock = sample_clock(cuda_ordinal_);
    slowed_down_ = clock.throttle == "thermal" || clock.throttle == "hardware slowdown";
    if (slowed_down_) seen_ = clock.throttle == "thermal" ? "thermal slowdown" : clock.throttle;
    return clock.sm_mhz;
  }
  bool slowed_down() const { return slowed_down_; }
  // A pause after discarded samples, for a GPU that nobody keeps busy cools within moments. Not for ever: one that
  // others heat stays hot.
  void let_cool() {
    if (paused_ >= kMostPauses) return;
    std::this_thread::sleep_for(kPause);
    ++paused_;
  }
  std::string complaint() const { return "no sample was taken without " + seen_ + "; let the GPU cool down"; }

 private:
  const int cuda_ordinal_;
  static constexpr auto kPause = std::chrono::milliseconds(200);
  static constexpr int kMostPauses = 15;
  bool slowed_down_ = false;
  int paused_ = 0;
  std::string seen_;
};

void keep_busy(const std::shared_ptr<Device>& device, const TimedWork& work, double seconds, std::uint64_t& index) {
  constexpr int kLaunches = 8;
  for (const auto begin = std::chrono::steady_clock::now(); seconds_since(begin) < seconds;) {
    for (int i = 0; i < kLaunches; ++i) work.launch(index++);
    device->synchronize(nullptr);
  }
}

constexpr int kRoundsPerWanted = 4;  // rounds tried for each that is wanted, where some are discarded
constexpr int kGlanceSamples = 3;

Timing take_samples(const std::shared_ptr<Device>& device, Runner& runner, int samples, int cuda_ordinal) {
  const int per_round = std::min({samples, kSamplesInFlight, std::max(1, kLaunchesInFlight / runner.per_sample())});
  const int rounds = ceil_div(samples, per_round);
  const Timers timers = make_timers(device, static_cast<std::size_t>(per_round));
  SlowdownWatch watch(cuda_ordinal);
  Timing timing;
  for (int round = 0; round < kRoundsPerWanted * rounds && static_cast<int>(timing.samples_us.size()) < samples;
       ++round) {
    runner.lead(per_round);
    for (const auto& timer : timers) runner.sample(*timer);
    const int clock_mhz = watch.look();
    device->synchronize(nullptr);
    if (watch.slowed_down()) {
      watch.let_cool();
      continue;
    }
    for (const auto& timer : timers) {
      timing.samples_us.push_back(timer->microseconds() / runner.per_sample());
      timing.clocks_mhz.push_back(clock_mhz);
    }
  }
  if (timing.samples_us.empty()) timing.complaint = watch.complaint();
  return timing;
}

}  // namespace

Timing time_cold(const std::shared_ptr<Device>& device, const TimedWork& work, const TimingPlan& plan) {
  std::uint64_t index = 0;
  if (plan.hopeless_us > 0) {
    Runner runner(device, work, plan.batch_microseconds, index);
    Timing glance = take_samples(device, runner, kGlanceSamples, plan.cuda_ordinal);
    const std::vector<double>& us = glance.samples_us;
    if (!us.empty() && *std::min_element(us.begin(), us.end()) > plan.hopeless_us) return glance;
  }
  keep_busy(device, work, plan.warm_up_seconds, index);
  Runner runner(device, work, plan.batch_microseconds, index);
  const int samples = std::clamp(static_cast<int>(plan.sample_seconds * 1e6 / runner.sample_us()),
                                 std::max(plan.min_samples, 1), std::max(plan.min_samples, kMaxSamples));
  return take_samples(device, runner, samples, plan.cuda_ordinal);
}

std::vector<Timing> time_in_turns(const std::shared_ptr<Device>& device, const std::vector<TimedWork>& works,
                                  const TurnsPlan& plan) {
  if (works.empty()) return {};
  std::uint64_t index = 0;
  std::vector<std::unique_ptr<Runner>> runners;
  double round_us = 0;
  for (const TimedWork& work : works) {
    runners.push_back(std::make_unique<Runner>(device, work, plan.batch_microseconds, index));
    round_us += 2 * runners.back()->sample_us();  // what leads a sample takes about as long
  }
  const int rounds = std::clamp(static_cast<int>(plan.seconds * 1e6 / round_us), plan.min_rounds,
                                std::max(plan.min_rounds, plan.max_rounds));
  const Timers timers = make_timers(device, works.size());
  SlowdownWatch watch(plan.cuda_ordinal);
  std::vector<Timing> timings(works.size());
  int taken = 0;
  for (int round = 0; round < kRoundsPerWanted * rounds && taken < rounds; ++round) {
    for (std::size_t turn = 0; turn < works.size(); ++turn) {
      const std::size_t i = (static_cast<std::size_t>(round) + turn) % works.size();
      runners[i]->lead(1);
      runners[i]->sample(*timers[i]);
    }
    const int clock_mhz = watch.look();
    device->synchronize(nullptr);
    if (watch.slowed_down()) {
      watch.let_cool();
      continue;
    }
    ++taken;
    for (std::size_t i = 0; i < works.size(); ++i) {
      timings[i].samples_us.push_back(timers[i]->microseconds() / runners[i]->per_sample());
      timings[i].clocks_mhz.push_back(clock_mhz);
    }
  }
  for (Timing& timing : timings) {
    if (taken == 0) timing.complaint = watch.complaint();
  }
  return timings;
}

}  // namespace attune
