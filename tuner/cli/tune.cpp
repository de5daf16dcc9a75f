#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <mutex>
#include <thread>

#include "generator/error.h"
#include "tuner/cli/compile.h"
#include "tuner/cli/config_options.h"
#include "tuner/cli/device_options.h"
#include "tuner/cli/exit_status.h"
#include "tuner/cli/interruption.h"
#include "tuner/cli/output.h"
#include "tuner/cli/problem_options.h"
#include "tuner/cli/report.h"
#include "tuner/cli/shapes_options.h"
#include "tuner/cli/sweep_progress.h"
#include "tuner/cli/verb.h"
#include "tuner/database/database_json.h"
#include "tuner/database/file_system.h"
#include "tuner/database/output_file.h"
#include "tuner/database/system_database.h"
#include "tuner/search/race.h"
#include "tuner/sweep/sweep.h"

namespace attune::cli {
namespace {

struct TuneOptions {
  OutputOptions output;
  ProblemOptions problem;
  ShapesOptions shapes;
  DeviceOptions device;
  ConfigOptions config;
  std::string rigor = "measure", space = "whole", progress = "auto";
  std::optional<double> budget;
  std::optional<int> patience, max_candidates;
  double trial_timeout = 60;
  int compile_workers = -1;
  bool compile_only = false;
};

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::invalid_argument, message); }

/// What became of one problem: a result, or the error that kept it from having one.
struct Tuned {
  AttentionProblem problem;
  std::optional<SweepResult> result;
  std::string error;
};

SweepOptions sweep_options(const TuneOptions& options) {
  SweepOptions sweep;
  const auto rigor = parse_rigor(options.rigor);
  if (!rigor) refuse(fmt::format("--rigor {}: expected estimate, measure, patient or exhaustive", options.rigor));
  sweep.rigor = *rigor;
  const auto extent = parse_space_extent(options.space);
  if (!extent) refuse(fmt::format("--space {}: expected whole or reduced", options.space));
  sweep.extent = *extent;
  if (options.budget && (!std::isfinite(*options.budget) || *options.budget <= 0))
    refuse(fmt::format("--budget {}: must be a positive number of seconds", *options.budget));
  sweep.budget_seconds = options.budget;
  if (options.patience && *options.patience < 0)
    refuse(fmt::format("--patience {}: must be at least 1, or 0 to try the whole space", *options.patience));
  sweep.patience = options.patience;
  sweep.max_candidates = options.max_candidates.value_or(0);
  if (sweep.max_candidates < 0)
    refuse(fmt::format("--max-candidates {}: must be at least 1, or 0 for no limit", sweep.max_candidates));
  if (!std::isfinite(options.trial_timeout) || options.trial_timeout <= 0)
    refuse(fmt::format("--trial-timeout {}: must be a positive number of seconds", options.trial_timeout));
  sweep.trial_timeout_seconds = options.trial_timeout;
  if (options.compile_workers < -1)
    refuse(fmt::format("--compile-workers {}: must be at least 0, or -1 for all cores", options.compile_workers));
  sweep.compile_workers = options.compile_workers;
  sweep.seed = options.problem.seed();
  return sweep;
}

/// What lies in the machine and not in a problem ends the whole run.
bool concerns_all_problems(const Error& error) {
  switch (error.code()) {
    case ErrorCode::no_device:
    case ErrorCode::nvrtc_unavailable:
    case ErrorCode::io:
    case ErrorCode::database:
      return true;
    default:
      return false;
  }
}

/// Sweeps of a list of problems. One problem has all GPUs; of several each GPU takes the next.
class Run {
 public:
  Run(std::vector<AttentionProblem> problems, const std::vector<ChosenDevice>& devices, SweepOptions options,
      TuningDatabase& database, ProgressStyle style)
      : options_(std::move(options)), database_(database), progress_(style, problems.size()) {
    for (AttentionProblem& problem : problems) tuned_.push_back({std::move(problem), std::nullopt, ""});
    options_.spec = devices.front().spec;
    options_.stop = &interruption_.asked();
    options_.presets = open_system_database();
    if (tuned_.size() == 1) {
      std::string all = devices.front().name;
      for (std::size_t i = 1; i < devices.size(); ++i) all += fmt::format(",{}", devices[i].ordinal);
      places_ = {all};
    } else {
      for (const ChosenDevice& device : devices) places_.push_back(device.name);
      places_.resize(std::min(places_.size(), tuned_.size()));
    }
    if (options_.compile_workers < 0 && places_.size() > 1) {
      const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
      options_.compile_workers = static_cast<int>(std::max<std::size_t>(1, cores / places_.size()));
    }
  }

  std::vector<Tuned> tune() {
    std::vector<std::thread> threads;
    for (std::size_t i = 1; i < places_.size(); ++i) threads.emplace_back([this, i] { work(places_[i]); });
    work(places_.front());
    for (std::thread& thread : threads) thread.join();
    progress_.finish();
    if (trouble_) std::rethrow_exception(trouble_);
    return std::move(tuned_);
  }

  bool interrupted() const { return interruption_.asked(); }

 private:
  void work(const std::string& device) {
    SweepOptions options = options_;
    options.device = device;
    for (auto index = take(); index && !interrupted(); index = take()) {
      Tuned& tuned = tuned_[*index];
      try {
        progress_.begin(*index, tuned.problem);
        tuned.result = sweep(tuned.problem, options, database_,
                             [&](const SweepProgress& state) { progress_.show(*index, tuned.problem, state); });
        progress_.end(*index, tuned.problem, *tuned.result);
      } catch (const Error& error) {
        if (interrupted()) return;
        if (tuned_.size() == 1 || concerns_all_problems(error)) return give_up();
        tuned.error = error.what();
        progress_.fail(*index, tuned.problem, tuned.error);
      } catch (...) {
        return give_up();
      }
    }
  }

  std::optional<std::size_t> take() {
    const std::lock_guard lock(mutex_);
    if (trouble_ || next_ == tuned_.size()) return std::nullopt;
    return next_++;
  }

  void give_up() {
    const std::lock_guard lock(mutex_);
    if (!trouble_) trouble_ = std::current_exception();
  }

  const Interruption interruption_;
  SweepOptions options_;
  TuningDatabase& database_;
  ProgressPrinter progress_;
  std::vector<std::string> places_;  // each a device, or a list of them, that sweeps at the same time as the others
  std::vector<Tuned> tuned_;         // each touched by the one thread that took it
  std::mutex mutex_;                 // guards what follows
  std::size_t next_ = 0;
  std::exception_ptr trouble_;
};

std::string status_of(const Tuned& tuned) {
  if (!tuned.error.empty()) return "error";
  if (!tuned.result) return "not_begun";
  if (tuned.result->ended_by == "interrupted") return "interrupted";
  if (tuned.result->not_stored) return "not_stored";
  return tuned.result->best ? "ok" : "nothing_found";
}

/// Results that could not be stored (a full disk) make the run a failure, although they are shown.
ExitStatus exit_status_of(const std::vector<Tuned>& all, bool interrupted) {
  if (interrupted) return kInterrupted;
  ExitStatus worst = kOk;
  for (const Tuned& tuned : all) {
    const std::string status = status_of(tuned);
    if (status == "not_stored") return kBadInput;
    if (status != "ok") worst = kCheckFailed;
  }
  return worst;
}

std::string basis_of(const SweepResult& result, const ChosenDevice& device) {
  if (result.timed) return "timed on the GPU";
  return fmt::format("ranked by the cost model, proven on the {}", device.is_cuda() ? "GPU" : "emulator");
}

/// What was done in place of a search by times, which needs a GPU; empty if that was not asked for or was done.
std::string done_instead(const SweepResult& result, Rigor asked, const ChosenDevice& device) {
  if (result.timed || asked == Rigor::estimate) return "";
  return fmt::format(
      "--rigor {} times candidates, which the {} cannot: the cost model ranked all {} configs, and {} of the first "
      "were "
      "proven there, as with --rigor estimate. A GPU (--device cuda:N) would time them",
      to_string(asked), device.is_cuda() ? "device" : "emulator", result.space_size, result.rows.size());
}

Json to_json(const Tuned& tuned, const ChosenDevice& device, Rigor asked, const TuningDatabase& database) {
  Json document = {{"status", status_of(tuned)},
                   {"problem", canonical_text(tuned.problem)},
                   {"device", device.name},
                   {"target", device.spec.key}};
  if (!tuned.error.empty()) document["message"] = tuned.error;
  if (!tuned.result) return document;
  const SweepResult& result = *tuned.result;
  document["timed"] = result.timed;
  document["basis"] = basis_of(result, device);
  document["rigor"] = to_string(result.rigor);
  document["rigor_asked"] = to_string(asked);
  if (const std::string instead = done_instead(result, asked, device); !instead.empty()) document["instead"] = instead;
  document["ended_by"] = result.ended_by;
  document["seconds"] = result.seconds;
  document["space"] = result.space_size;
  document["tried"] = result.rows.size() - static_cast<std::size_t>(result.reused);
  document["reused"] = result.reused;
  document["database"] = database.path().string();
  if (result.best) document["best"] = cli::to_json(*result.best);
  if (result.default_measurement) document["default"] = cli::to_json(*result.default_measurement);
  if (result.timed && result.best && result.default_measurement && result.default_measurement->median_us > 0) {
    document["speed_over_default"] = result.default_measurement->median_us / result.best->median_us;
  }
  Json race = Json::array();
  for (const Measurement& row : result.finalists) {
    race.push_back({{"place", row.place}, {"config", canonical_text(row.config)}, {"median_us", row.median_us}});
    const Comparison behind = compare_rows(row, result.finalists.front());
    if (behind.interval)
      race.back().update(
          Json{{"time_ratio", behind.ratio}, {"interval", {behind.interval->low, behind.interval->high}}});
  }
  if (!race.empty()) document["race"] = std::move(race);
  Json counts = Json::object();
  for (const Measurement& row : result.rows) {
    const std::string status(to_string(row.status));
    counts[status] = counts.value(status, 0) + 1;
  }
  document["counts"] = std::move(counts);
  document["notes"] = result.notes;
  return document;
}

void print_tuned(const Tuned& tuned, const ChosenDevice& device, Rigor asked) {
  print_field("problem", canonical_text(tuned.problem));
  if (!tuned.error.empty()) print_field("error", tuned.error);
  if (!tuned.result) return;
  const SweepResult& result = *tuned.result;
  print_field("device", device.is_cuda() ? fmt::format("{} {}", device.name, device.spec.name)
                                         : fmt::format("emulator of {}", device.spec.key));
  print_field("basis", basis_of(result, device) + (result.timed ? "" : ": times are estimates"));
  if (const std::string instead = done_instead(result, asked, device); !instead.empty())
    print_field("instead", instead);
  print_field("tried", fmt::format("{} candidates of {} in {:.1f} s, {} more from earlier runs; ended by: {}",
                                   result.rows.size() - static_cast<std::size_t>(result.reused), result.space_size,
                                   result.seconds, result.reused, result.ended_by));
  for (const Measurement& row : result.rows) {
    if (row.status != MeasurementStatus::ok && row.status != MeasurementStatus::infeasible)
      print_field("failed", describe(row));
  }
  for (const Measurement& row : result.finalists) {
    std::string behind;
    if (row.place > 1) {
      const Comparison by = compare_rows(row, result.finalists.front());
      if (by.interval) {
        behind = fmt::format("  takes {:.4f} of the first's time (95 %: {:.4f} to {:.4f})", by.ratio, by.interval->low,
                             by.interval->high);
      }
    }
    print_field(row.place == 1 ? "race" : "", fmt::format("{}. {}{}", row.place, describe(row), behind));
  }
  if (result.default_measurement) print_field("default", describe(*result.default_measurement));
  if (result.best) {
    print_field("best", describe(*result.best) + (result.default_measurement
                                                      ? compare_with_default(*result.best, *result.default_measurement)
                                                      : ""));
  } else {
    print_field("best", "none: no candidate was correct");
  }
}

void print_all(const std::vector<Tuned>& all, const ChosenDevice& device, Rigor asked, const TuningDatabase& database) {
  for (const Tuned& tuned : all) {
    print_tuned(tuned, device, asked);
    if (all.size() > 1) print("\n");
  }
  print_field("database", database.path().string());
}

ExitStatus compile_only(const TuneOptions& options, const std::vector<AttentionProblem>& problems) {
  CompileJobs jobs;
  jobs.problems = problems;
  jobs.max_candidates = options.max_candidates.value_or(jobs.max_candidates);
  jobs.workers = std::max(0, options.compile_workers);
  return compile_kernels(jobs, options.device.choose_several().front(), options.output);
}

/// Where results that could not be stored are kept instead, so that an hour of a GPU is not lost to a full disk.
void keep_unsaved(const std::vector<Tuned>& all, const TuningDatabase& database) {
  std::vector<Measurement> rows;
  for (const Tuned& tuned : all) {
    if (tuned.result) rows.insert(rows.end(), tuned.result->unsaved.begin(), tuned.result->unsaved.end());
  }
  if (rows.empty()) return;
  std::error_code ignored;
  std::string folder = (std::filesystem::temp_directory_path(ignored) / "attune-unsaved-XXXXXX").string();
  const std::string path = (::mkdtemp(folder.data()) != nullptr ? folder : ".") + "/results.json";
  try {
    write_output_file(path, export_measurements(rows));
    warn(fmt::format("results that are not stored are kept in {}: `attune db import {} --database {}` stores them",
                     path, shell_word(path), shell_word(database.path().string())));
  } catch (const Error& error) {
    warn(fmt::format("results that are not stored are lost: {}", error.what()));
  }
}

int run(const TuneOptions& options) {
  const SweepOptions sweep = sweep_options(options);
  const ProgressStyle style = parse_progress_style(options.progress);
  const std::vector<AttentionProblem> problems =
      select(options.shapes.problems(options.problem), options.shapes.shard());
  for (const AttentionProblem& problem : problems) {
    for (const Operand operand : {Operand::q, Operand::k}) element_count(problem, operand);
  }
  if (options.compile_only) return compile_only(options, problems);
  const std::vector<ChosenDevice> devices = options.device.choose_several();
  if (!devices.front().why.empty()) warn(devices.front().why);
  const std::shared_ptr<TuningDatabase> database = options.config.open_writable_database(options.output);
  if (problems.empty()) {
    warn("this shard has no problem: there are fewer problems than shards");
    if (options.output.json) print_json({{"status", "ok"}, {"results", Json::array()}});
    return kOk;
  }

  Run work(problems, devices, sweep, *database, style);
  const std::vector<Tuned> all = work.tune();
  for (const Tuned& tuned : all) {
    if (!tuned.result) continue;
    for (const std::string& note : tuned.result->notes) warn(note);
  }
  keep_unsaved(all, *database);
  if (!options.output.json) {
    print_all(all, devices.front(), sweep.rigor, *database);
  } else if (!options.shapes.given()) {
    print_json(to_json(all.front(), devices.front(), sweep.rigor, *database));
  } else {
    Json document = {{"status", "ok"}, {"database", database->path().string()}, {"results", Json::array()}};
    for (const Tuned& tuned : all) {
      Json entry = to_json(tuned, devices.front(), sweep.rigor, *database);
      if (entry["status"] != "ok" && document["status"] == "ok") document["status"] = entry["status"];
      document["results"].push_back(std::move(entry));
    }
    print_json(document);
  }
  if (work.interrupted()) {
    warn(fmt::format("interrupted; what was measured is kept in {}: the same command goes on from there",
                     database->path().string()));
  }
  return exit_status_of(all, work.interrupted());
}

}  // namespace

Verb make_tune(CommandLine& command) {
  auto options = std::make_shared<TuneOptions>();
  CommandLine* verb = add_verb(
      command, "tune",
      "search the configs of a problem, or of a list, for the fastest: correct before timed, the finalists raced, "
      "every "
      "result stored. Exit status 130 after Ctrl-C",
      "attune tune --batch 4 --heads 16 --seq 4096 --head-dim 128 --causal\n"
      "attune tune --shapes shapes.csv --shard 1/4 --rigor patient --device all\n"
      "attune tune --heads 2 --seq 256 --head-dim 64 --device emulator --target a100 --max-candidates 5 --json");
  options->shapes.add_to(*verb, "problem");
  verb->add_option("--rigor", options->rigor,
                   "how much is done: estimate (proven, not timed, ranked by the cost model), measure (default), "
                   "patient (many more trials), exhaustive (the whole space)");
  verb->add_option("--budget", options->budget,
                   "seconds for each problem after which no new trial begins (default 60, patient 600, exhaustive no "
                   "limit)");
  verb->add_option(
      "--patience", options->patience,
      "trials without an improvement that end the search (default 15 to 40 by the size of the space, patient "
      "75 to 200, exhaustive none; 0: try the whole space)");
  verb->add_option("--max-candidates", options->max_candidates,
                   "try at most so many configs, the default included (0: no limit)");
  verb->add_option("--space", options->space,
                   "whole (default), or reduced: a few hundred configs that can be searched exhaustively");
  verb->add_option("--trial-timeout", options->trial_timeout, "seconds after which a trial is ended (default 60)");
  verb->add_option("--compile-workers", options->compile_workers,
                   "processes that compile ahead (default: as many as there are cores)");
  verb->add_flag("--compile-only", options->compile_only,
                 "only fill the cubin cache with what would be tried first, as `attune compile`; needs no GPU");
  verb->add_option("--progress", options->progress,
                   "on stderr: auto (default), line, plain, json (an event a line) or none");
  options->problem.add_to(*verb);
  options->device.add_several_to(*verb);
  options->config.add_database_to(*verb);
  options->output.add_to(*verb);
  return {verb, [options] { return run(*options); }};
}

}  // namespace attune::cli
