#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "generator/config/config_space.h"
#include "tuner/database/system_database.h"
#include "tuner/database/tuning_database.h"
#include "tuner/sweep/sweep_effort.h"
#include "tuner/trial/trial.h"

namespace attune {

struct SweepOptions {
  std::string device;            ///< "cuda:0", several GPUs of one model "cuda:0,1,3", or "emulator"
  DeviceSpec spec;               ///< of that device, or the target that the emulator stands for
  Rigor rigor = Rigor::measure;  ///< a device that cannot time knows but estimate
  SpaceExtent extent = SpaceExtent::whole;
  std::optional<double> budget_seconds;  ///< effort_of()'s if not given; the default config is tried regardless
  std::optional<int> patience;           ///< likewise
  int max_candidates = 0;                ///< the first so many that the search asks for; 0: no limit
  double trial_timeout_seconds = 60;     ///< the child is killed and the row says timed_out
  double compile_timeout_seconds = 60;   ///< the same for a compilation: compile_timed_out
  double prepare_timeout_seconds = 300;  ///< for inputs and reference, once per child
  std::uint64_t seed = 1;                ///< of the inputs
  /// Processes that compile ahead; -1: as many as there are cores (one less on the emulator).
  int compile_workers = -1;
  std::string command;     ///< the attune executable, run as `command worker`; empty: find_attune_command()
  TrialOptions trial;      ///< its sample_seconds and time are those of the rigor
  DatabaseLayers presets;  ///< databases whose winners are seeds, too
  const std::atomic<bool>* stop = nullptr;  ///< once true the sweep ends within seconds, and keeps what it has
};

struct SweepProgress {
  int done = 0;
  int total = 0;  ///< that the search will take if nothing improves any more
  Measurement last;
  bool reused = false;  ///< `last` is a stored row of an earlier run, not tried again
  std::optional<Measurement> best, default_measurement;
  double seconds = 0;                  ///< since the sweep began
  std::optional<double> seconds_left;  ///< by the time that trials have taken so far and the budget; nothing at first
  std::size_t compile_queue = 0;       ///< candidates that compile ahead or wait for it
};

struct SweepResult {
  std::optional<Measurement> best;
  std::optional<Measurement> default_measurement;  ///< its row of the race if there was one
  std::vector<Measurement> rows;                   ///< the trials in the order of their results, reused ones included
  std::vector<Measurement> finalists;              ///< rows of the final race by place; empty if there was none
  int reused = 0;                                  ///< of the trials
  bool race_reused = false;
  bool timed = false;             ///< false: ranked by the cost model, correctness seen on the device
  Rigor rigor = Rigor::estimate;  ///< of the rows
  std::string ended_by;           ///< "space exhausted", "patience", "budget", "max candidates", "interrupted"
  std::size_t space_size = 0;
  double seconds = 0;
  bool not_stored = false;           ///< some rows could not be stored
  std::vector<Measurement> unsaved;  ///< which: export_measurements() and import_measurements() bring them back
  std::vector<std::string> notes;    ///< for people: rows that could not be stored, a race that failed, and why
};

/// Searches the feasible space for the fastest config. Each candidate is tried in a child process (`attune worker`, one
/// for each GPU), correct before timed, and its result stored at once, failures too.
///
///   order    what a Searcher proposes; its seeds are the default config, this problem's best of earlier runs and of
///            the presets, the winners of its nearest tuned neighbours and the tiles that FlashAttention-2 and 3 ship
///   race     those within reach of the fastest, the default always among them, are timed again alternately,
///            forward ones with the problem's own and with wide scores, which decides (tuner/search/race.h): their rows
///            carry the race and their place in it. Without it (it failed, or the sweep was interrupted or killed) what
///            an earlier race elected stands, else the default, never the fastest of the trials; the database says the
///            same from the default's trial on
///   again    configs already measured at this rigor or a higher one with the same templates, compiler and driver are
///            not tried again, nor is a race between the same finalists: an interrupted sweep goes on where it stopped
///
/// On a device that cannot time (the emulator), and for Rigor::estimate, candidates are proven but not timed, and
/// ranked by the cost model; the emulator proves them on a reduced problem of the same kernel class where the whole one
/// would take more than about a second. The row's protocol says so.
///
/// A row that cannot be stored (a lock, a full disk) is tried again with those after it and when the sweep ends; then
/// it is kept in the result and noted. `on_progress` is called as trials end, one call at a time, from threads of the
/// sweep. Throws Error(invalid_argument) for a bad problem or device (or GPUs of several models), and Error if no child
/// can be started or none can prepare the problem (no such GPU, NVRTC missing), with the child's own words.
SweepResult sweep(const AttentionProblem& problem, const SweepOptions& options, TuningDatabase& database,
                  const std::function<void(const SweepProgress&)>& on_progress = nullptr);

}  // namespace attune
