#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tuner/trial.h"
#include "tuner/tuning_database.h"

namespace attune {

struct SweepOptions {
  std::string device;          ///< "cuda:0" or "emulator"
  DeviceSpec spec;             ///< of that device, or the target that the emulator stands for
  double budget_seconds = 60;  ///< no trial begins later; the default config is tried whatever the budget
  int max_candidates = 0;      ///< the first so many of the space, the default included; 0: no limit but the budget
  double trial_timeout_seconds = 60;     ///< the child is killed and the row says timed_out
  double compile_timeout_seconds = 60;   ///< the same for a compilation: compile_timed_out
  double prepare_timeout_seconds = 300;  ///< for inputs and reference, once per child
  std::uint64_t seed = 1;                ///< of the inputs
  int compile_workers =
      -1;               ///< processes that compile ahead; -1: as many as there are cores (one less on the emulator)
  std::string command;  ///< the attune executable, run as `command worker`; empty: find_attune_command()
  TrialOptions trial;
};

struct SweepProgress {
  int done = 0, total = 0;
  Measurement last;
  bool reused = false;  ///< `last` is a stored row of an earlier run, not tried again
  std::optional<Measurement> best, default_measurement;
  double seconds = 0;  ///< since the sweep began
};

struct SweepResult {
  std::optional<Measurement> best;
  std::optional<Measurement> default_measurement;
  std::vector<Measurement> rows;  ///< in the order of trial, reused ones included
  int reused = 0;
  bool timed = false;    ///< false: ranked by the cost model, correctness seen on the emulator
  std::string ended_by;  ///< "space exhausted", "budget", "max candidates"
  double seconds = 0;
  std::vector<std::string> notes;  ///< for people: rows that could not be stored, and why
};

/// Tries the default config first, then the feasible space in the cost model's order, each in a child process (`attune
/// worker`), correct before timed, each result stored at once. Configs already measured with the same templates,
/// compiler, driver and rigor are not tried again: an interrupted sweep goes on where it stopped.
///
/// On a device that cannot time (the emulator) each candidate's correctness is checked, on a reduced problem of the
/// same kernel class where the whole one would take more than about a second; its row is an estimate, ranked by the
/// cost model, and its protocol says so.
///
/// A row that cannot be stored is kept in the result and noted. Throws Error(invalid_argument) for a bad problem or
/// device, and Error if no child can be started or none can prepare the problem (no such GPU, NVRTC missing), with the
/// child's own words.
SweepResult sweep(const AttentionProblem& problem, const SweepOptions& options, TuningDatabase& database,
                  const std::function<void(const SweepProgress&)>& on_progress = nullptr);

/// A problem of the same kernel class that the emulator runs in about a second: a few tiles of `config`, with the same
/// tails. The problem itself if it is small enough.
AttentionProblem reduced_problem(const AttentionProblem& problem, const KernelConfig& config);

}  // namespace attune
