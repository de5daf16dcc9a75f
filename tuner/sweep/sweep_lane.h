#pragma once

#include <atomic>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "runtime/device.h"
#include "tuner/sweep/sweep.h"
#include "tuner/trial/compile_ahead.h"
#include "tuner/trial/worker_process.h"

namespace attune {

/// What a worker says about itself: the identity and provenance of its rows.
struct WorkerFacts {
  std::string device;
  int sm_count = 0;
  Toolchain toolchain;
  bool can_time = false;
};

/// What ends a sweep that was asked to stop; the sweep catches it.
struct Interrupted {};

/// One device of a sweep, and the conversation with the child process that tries configs there. Not thread-safe but
/// where it says so. A worker ends with the thread that started it.
class SweepLane {
 public:
  /// `problem` and `options` outlive this. The worker is started by start() or the first request that needs it.
  SweepLane(const AttentionProblem& problem, const SweepOptions& options, std::string device);

  const std::string& device() const { return device_; }
  /// The GPU that the worker of last time opened; unknown before start().
  const NodeGpu& node() const { return node_; }
  bool has_worker() const { return worker_ != nullptr; }
  /// Starts a worker, which opens the device. Throws Error in the child's own words.
  WorkerFacts start();
  void end_worker() { worker_.reset(); }

  /// Makes sure that the worker holds inputs and reference. False, with the reason in `row`, if this worker cannot; one
  /// after the other, or a fault of the environment, is an Error.
  bool prepare_for_trial(Measurement& row);
  /// Compiles a config for `tried` in this lane's worker. Throws Error for a fault of the environment.
  CompileOutcome compile(const AttentionProblem& tried, const KernelConfig& config);
  /// The same in another process, which is ended after anything but an outcome. Thread-safe.
  CompileOutcome compile_in(std::unique_ptr<WorkerProcess>& worker, const AttentionProblem& tried,
                            const KernelConfig& config, const std::atomic<bool>* cancel) const;
  /// Runs a compiled config: the row that the worker measured, or what became of it, whatever the worker says. Beyond
  /// `hopeless_us` it is timed no further (0: timed whole). Throws Interrupted, and Error for a fault of the
  /// environment.
  Measurement try_config(const AttentionProblem& tried, const KernelConfig& config, double hopeless_us);
  /// A batch of the final race between configs; its `complaint` says why there are no times.
  RaceTimes race(const std::vector<KernelConfig>& configs, const RaceOptions& options);

 private:
  nlohmann::json request(const char* op) const;
  nlohmann::json ask_once(const char* op);
  void prepare();
  bool stop_asked() const { return options_.stop && *options_.stop; }

  const AttentionProblem& problem_;
  const SweepOptions& options_;
  const std::string device_;
  const int ordinal_;
  NodeGpu node_;
  std::unique_ptr<WorkerProcess> worker_;  // none after one that had to be killed
  bool prepared_ = false;                  // the worker holds inputs and reference
  int unprepared_ = 0;                     // workers in a row that could not be prepared
};

}  // namespace attune
