#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tuner/cli/device_options.h"
#include "tuner/cli/interruption.h"
#include "tuner/cli/sweep_progress.h"
#include "tuner/sweep/shapes_file.h"
#include "tuner/sweep/sweep.h"

namespace attune::cli {

/// What became of one problem: a result, or the error that kept it from having one.
struct Tuned {
  AttentionProblem problem;
  std::string name;  // what its list calls it; may be empty
  std::optional<SweepResult> result;
  std::string error;

  bool is_not_begun() const { return !result && error.empty(); }
};

/// How long a run may take, from when this was made. Thread-safe.
class TimeLimit {
 public:
  TimeLimit() = default;  ///< none
  explicit TimeLimit(double seconds) : seconds_(seconds) {}
  /// Not negative; none if there is no limit.
  std::optional<double> seconds_left() const;
  bool is_over() const { return seconds_left() == 0.0; }

 private:
  std::optional<double> seconds_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

/// Sweeps of a list of problems. One problem has all GPUs; of several each GPU takes the next.
class TuneList {
 public:
  /// `options` lacks what lies in the devices, the interruption and the presets. `database` outlives this. After
  /// `limit` no problem is begun, and no sweep's budget ends later.
  TuneList(const std::vector<NamedProblem>& problems, const std::vector<ChosenDevice>& devices, SweepOptions options,
           TuningDatabase& database, ProgressStyle style, TimeLimit limit = {});

  /// What became of each problem, in their order. Throws what lies in the machine and not in a problem: it ends the
  /// whole run, as any error of a single problem does.
  std::vector<Tuned> tune();

  bool interrupted() const { return interruption_.asked(); }

 private:
  void work(const std::string& device);
  std::optional<std::size_t> take();
  void give_up();
  std::optional<double> budget_seconds() const;

  const Interruption interruption_;
  SweepOptions options_;
  const TimeLimit limit_;
  TuningDatabase& database_;
  ProgressPrinter progress_;
  std::vector<std::string> places_;  // each a device, or a list of them, that sweeps at the same time as the others
  std::vector<Tuned> tuned_;         // each touched by the one thread that took it
  std::mutex mutex_;                 // guards what follows
  std::size_t next_ = 0;
  std::exception_ptr trouble_;
};

}  // namespace attune::cli
