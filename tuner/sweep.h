#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tuner/tuning_database.h"

namespace attune {

struct SweepOptions {
  std::string device;                ///< "cuda:0" or "emulator"
  DeviceSpec spec;                   ///< of that device, or the target that the emulator stands for
  double budget_seconds = 60;
  int max_candidates = 0;            ///< 0: no limit but the budget
  double trial_timeout_seconds = 60; ///< the child is killed and the row says timed_out
  std::uint64_t seed = 1;
};

struct SweepProgress {
  int done = 0, total = 0;
  Measurement last;
  std::optional<Measurement> best, default_measurement;
  double seconds = 0;
};

struct SweepResult {
  std::optional<Measurement> best;
  std::vector<Measurement> rows;
  bool timed = false;       ///< false: ranked by the cost model, correctness seen on the emulator
  std::string ended_by;     ///< "space exhausted", "budget", "max candidates"
};

/// Tries the default config first, then the feasible space in the cost model's order, each in a child process (`attune worker`), correct
/// before timed, each result stored at once. Configs already measured by this toolchain are not tried again.
SweepResult sweep(const AttentionProblem& problem, const SweepOptions& options, TuningDatabase& database,
                  const std::function<void(const SweepProgress&)>& on_progress = nullptr);

}  // namespace attune
