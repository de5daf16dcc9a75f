#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>

#include "generator/error.h"
#include "tuner/cli/config_options.h"
#include "tuner/cli/device_options.h"
#include "tuner/cli/exit_status.h"
#include "tuner/cli/output.h"
#include "tuner/cli/problem_options.h"
#include "tuner/cli/report.h"
#include "tuner/cli/validators.h"
#include "tuner/cli/verb.h"
#include "tuner/sweep.h"

namespace attune::cli {
namespace {

struct TuneOptions {
  OutputOptions output;
  ProblemOptions problem;
  DeviceOptions device;
  ConfigOptions config;
  double budget = 60;
  int max_candidates = 0;
  double trial_timeout = 60;
};

/// A longer line would wrap, and then not be rewritten as a whole.
std::size_t terminal_columns() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
}

/// On a terminal one line that is rewritten, elsewhere a line for each trial; always on stderr.
class ProgressPrinter {
 public:
  explicit ProgressPrinter(double budget) : budget_(budget), terminal_(::isatty(STDERR_FILENO) == 1) {}

  void operator()(const SweepProgress& progress) {
    std::string best = "none yet";
    if (progress.best) {
      best = canonical_text(progress.best->config);
      if (progress.default_measurement) best += compare_with_default(*progress.best, *progress.default_measurement);
    }
    const std::string count =
        fmt::format("{}/{}  {:.0f}/{:.0f} s", progress.done, progress.total, progress.seconds, budget_);
    if (terminal_) {
      const std::string line = fmt::format("{}  best: {}", count, best);
      fmt::print(stderr, "\r\x1b[K{}", line.substr(0, terminal_columns() - 1));
      std::fflush(stderr);
      open_line_ = true;
    } else {
      fmt::print(stderr, "{}  {}{}; best: {}\n", count, describe(progress.last),
                 progress.reused ? " (stored earlier)" : "", best);
    }
  }
  void finish() {
    if (open_line_) fmt::print(stderr, "\n");
    open_line_ = false;
  }

  static std::string compare_with_default(const Measurement& best, const Measurement& default_measurement) {
    const double mine = best.ranking_us(), other = default_measurement.ranking_us();
    if (default_measurement.status != MeasurementStatus::ok || mine <= 0 || other <= 0) return "";
    return fmt::format(", {:.2f}x the default{}", other / mine, best.median_us > 0 ? "'s speed" : " by the cost model");
  }

 private:
  double budget_;
  bool terminal_;
  bool open_line_ = false;
};

/// Results that could not be stored (a full disk) make the run a failure, although they are shown.
ExitStatus status_of(const SweepResult& result) {
  if (!result.notes.empty()) return kBadInput;
  return result.best ? kOk : kCheckFailed;
}

Json report(const AttentionProblem& problem, const ChosenDevice& device, const SweepResult& result,
            const TuningDatabase& database) {
  Json document = {{"status", !result.notes.empty() ? "not_stored"
                              : result.best         ? "ok"
                                                    : "nothing_found"},
                   {"problem", canonical_text(problem)},
                   {"device", device.name},
                   {"target", device.spec.key},
                   {"timed", result.timed},
                   {"basis", result.timed ? "timed on the GPU" : "ranked by the cost model, proven on the emulator"},
                   {"ended_by", result.ended_by},
                   {"seconds", result.seconds},
                   {"tried", result.rows.size() - static_cast<std::size_t>(result.reused)},
                   {"reused", result.reused},
                   {"database", database.path().string()}};
  if (result.best) document["best"] = to_json(*result.best);
  if (result.default_measurement) document["default"] = to_json(*result.default_measurement);
  if (result.timed && result.best && result.default_measurement && result.default_measurement->median_us > 0) {
    document["speed_over_default"] = result.default_measurement->median_us / result.best->median_us;
  }
  Json counts = Json::object();
  for (const Measurement& row : result.rows) {
    const std::string status(to_string(row.status));
    counts[status] = counts.value(status, 0) + 1;
  }
  document["counts"] = std::move(counts);
  document["notes"] = result.notes;
  return document;
}

void print_report(const AttentionProblem& problem, const ChosenDevice& device, const SweepResult& result,
                  const TuningDatabase& database) {
  print_field("problem", canonical_text(problem));
  print_field("device", device.is_cuda() ? fmt::format("{} {}", device.name, device.spec.name)
                                         : fmt::format("emulator of {}", device.spec.key));
  print_field("basis", result.timed ? "timed on the GPU"
                                    : "ranked by the cost model, proven on the emulator: times are estimates");
  print_field("tried", fmt::format("{} candidates in {:.1f} s, {} more from earlier runs; ended by: {}",
                                   result.rows.size() - static_cast<std::size_t>(result.reused), result.seconds,
                                   result.reused, result.ended_by));
  for (const Measurement& row : result.rows) {
    if (row.status != MeasurementStatus::ok && row.status != MeasurementStatus::infeasible)
      print_field("failed", describe(row));
  }
  if (result.default_measurement) print_field("default", describe(*result.default_measurement));
  if (result.best) {
    const std::string compared = result.default_measurement
                                     ? ProgressPrinter::compare_with_default(*result.best, *result.default_measurement)
                                     : "";
    print_field("best", describe(*result.best) + compared);
  } else {
    print_field("best", "none: no candidate was correct");
  }
  print_field("database", database.path().string());
}

int run(const TuneOptions& options) {
  if (!std::isfinite(options.budget) || options.budget <= 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--budget {}: must be a positive number of seconds", options.budget));
  }
  if (options.max_candidates < 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--max-candidates {}: must be at least 1, or 0 for no limit", options.max_candidates));
  }
  if (!std::isfinite(options.trial_timeout) || options.trial_timeout <= 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--trial-timeout {}: must be a positive number of seconds", options.trial_timeout));
  }
  const AttentionProblem problem = options.problem.problem();
  for (const Operand operand : {Operand::q, Operand::k}) element_count(problem, operand);
  const ChosenDevice chosen = options.device.choose();
  if (!chosen.why.empty()) warn(chosen.why);
  const std::shared_ptr<TuningDatabase> database = options.config.open_writable_database(options.output);

  SweepOptions sweep_options;
  sweep_options.device = chosen.name;
  sweep_options.spec = chosen.spec;
  sweep_options.budget_seconds = options.budget;
  sweep_options.max_candidates = options.max_candidates;
  sweep_options.trial_timeout_seconds = options.trial_timeout;
  sweep_options.seed = options.problem.seed();
  sweep_options.trial.cuda_ordinal = std::max(chosen.ordinal, 0);
  ProgressPrinter progress(options.budget);
  const SweepResult result =
      sweep(problem, sweep_options, *database, [&](const SweepProgress& state) { progress(state); });
  progress.finish();
  for (const std::string& note : result.notes) warn(note);
  if (options.output.json) {
    print_json(report(problem, chosen, result, *database));
  } else {
    print_report(problem, chosen, result, *database);
  }
  return status_of(result);
}

}  // namespace

Verb make_tune(CLI::App& command) {
  auto options = std::make_shared<TuneOptions>();
  CLI::App* verb = add_verb(
      command, "tune", "try configs of a problem, correct before timed, and store every result",
      "attune tune --batch 4 --heads 16 --seq 4096 --head-dim 128 --causal --budget 120\n"
      "attune tune --heads 2 --seq 256 --head-dim 64 --device emulator --target a100 --max-candidates 5 --json");
  verb->add_option("--budget", options->budget, "seconds after which no new trial begins (default 60)");
  verb->add_option("--max-candidates", options->max_candidates,
                   "try at most so many configs, the default included (0: no limit)")
      ->transform(whole_number<int>());
  verb->add_option("--trial-timeout", options->trial_timeout, "seconds after which a trial is ended (default 60)");
  options->problem.add_to(*verb);
  options->device.add_target_to(*verb);
  options->config.add_database_to(*verb);
  options->output.add_to(*verb);
  return {verb, [options] { return run(*options); }};
}

}  // namespace attune::cli
