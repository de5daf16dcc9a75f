#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "generator/error.h"
#include "tuner/cli/compile.h"
#include "tuner/cli/config_options.h"
#include "tuner/cli/device_options.h"
#include "tuner/cli/exit_status.h"
#include "tuner/cli/output.h"
#include "tuner/cli/problem_options.h"
#include "tuner/cli/shapes_options.h"
#include "tuner/cli/sweep_progress.h"
#include "tuner/cli/table.h"
#include "tuner/cli/tune_list.h"
#include "tuner/cli/tune_results.h"
#include "tuner/cli/verb.h"
#include "tuner/database/system_database.h"
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
  std::string budget, time_limit;
  std::optional<int> patience, max_candidates;
  double trial_timeout = 60;
  int compile_workers = -1;
  bool compile_only = false;
};

const Table kTuneTable = {"/results",
                          {{"name", "/name"},
                           {"problem", "/problem"},
                           {"status", "/status"},
                           {"config", "/best/config"},
                           {"median_us", "/best/median_us"},
                           {"wide_median_us", "/best/wide_median_us"},
                           {"tflops", "/best/tflops"},
                           {"speed_over_default", "/speed_over_default"},
                           {"rigor", "/rigor"},
                           {"ended_by", "/ended_by"},
                           {"message", "/message"}}};

// "90", "90s", "1.5m", "2h".
double seconds_of(const char* flag, std::string_view text) {
  double count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  const double seconds = unit.empty() || unit == "s" ? 1 : unit == "m" ? 60 : unit == "h" ? 3600 : 0;
  if (error != std::errc{} || !std::isfinite(count) || count <= 0 || seconds == 0)
    refuse(fmt::format("{} {}: must be a positive number of seconds, or of minutes or hours as 10m or 2h", flag, text));
  return count * seconds;
}

SweepOptions sweep_options(const TuneOptions& options) {
  SweepOptions sweep;
  const auto rigor = parse_rigor(options.rigor);
  if (!rigor) refuse(fmt::format("--rigor {}: expected estimate, measure, patient or exhaustive", options.rigor));
  sweep.rigor = *rigor;
  const auto extent = parse_space_extent(options.space);
  if (!extent) refuse(fmt::format("--space {}: expected whole or reduced", options.space));
  sweep.extent = *extent;
  if (!options.budget.empty()) sweep.budget_seconds = seconds_of("--budget", options.budget);
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

ExitStatus compile_only(const TuneOptions& options, const std::vector<NamedProblem>& problems) {
  CompileJobs jobs;
  for (const NamedProblem& named : problems) jobs.problems.push_back(named.problem);
  jobs.max_candidates = options.max_candidates.value_or(jobs.max_candidates);
  jobs.workers = std::max(0, options.compile_workers);
  OutputOptions output = options.output;
  output.json = output.format() == Format::json;
  return compile_kernels(jobs, options.device.choose_several().front(), output);
}

// What a shard takes so that all take about as long.
std::vector<NamedProblem> shard_of(const std::vector<NamedProblem>& list, const Shard& shard) {
  std::vector<std::int64_t> costs;
  for (const NamedProblem& named : list) costs.push_back(estimated_sweep_ms(named.problem));
  std::vector<NamedProblem> taken;
  for (const std::size_t position : balanced_shard(costs, shard)) taken.push_back(list[position]);
  return taken;
}

int run(const TuneOptions& options) {
  const SweepOptions sweep = sweep_options(options);
  const ProgressStyle style = parse_progress_style(options.progress);
  const Format format = options.output.format();
  TimeLimit limit;
  if (!options.time_limit.empty()) limit = TimeLimit(seconds_of("--time-limit", options.time_limit));
  const std::vector<NamedProblem> problems =
      shard_of(options.shapes.named_problems(options.problem), options.shapes.shard());
  for (const NamedProblem& named : problems) {
    for (const Operand operand : {Operand::q, Operand::k}) element_count(named.problem, operand);
  }
  if (options.compile_only) {
    if (format != Format::text && format != Format::json)
      refuse(
          fmt::format("--format {}: --compile-only makes no table; leave one of them out", options.output.format_word));
    return compile_only(options, problems);
  }
  const std::vector<ChosenDevice> devices = options.device.choose_several();
  if (!devices.front().why.empty()) warn(devices.front().why);
  const std::shared_ptr<TuningDatabase> database = options.config.open_writable_database(options.output);
  if (problems.empty()) {
    warn("this shard has no problem: there are fewer problems than shards");
    if (format != Format::text) print_document({{"status", "ok"}, {"results", Json::array()}}, kTuneTable, format);
    return kOk;
  }

  TuneList work(problems, devices, sweep, *database, style, limit);
  const std::vector<Tuned> all = work.tune();
  for (const Tuned& tuned : all) {
    if (!tuned.result) continue;
    for (const std::string& note : tuned.result->notes) warn(note);
  }
  keep_unsaved(all, *database);
  TunedConfigs picks(database, open_system_databases());
  if (format == Format::text) {
    print_all(all, devices.front(), sweep.rigor, picks);
  } else if (format == Format::json && !options.shapes.given()) {
    print_json(to_json(all.front(), devices.front(), sweep.rigor, picks));
  } else {
    Json document = {{"status", "ok"}, {"database", database->path().string()}, {"results", Json::array()}};
    for (const Tuned& tuned : all) {
      Json entry = to_json(tuned, devices.front(), sweep.rigor, picks);
      if (entry["status"] != "ok" && document["status"] == "ok") document["status"] = entry["status"];
      document["results"].push_back(std::move(entry));
    }
    print_document(document, kTuneTable, format);
  }
  if (const auto not_begun = std::count_if(all.begin(), all.end(), [](const Tuned& t) { return t.is_not_begun(); });
      not_begun > 0 && limit.is_over()) {
    warn(
        fmt::format("--time-limit {} is over, and {} of {} problems were not begun: the same command goes on with "
                    "them",
                    options.time_limit, not_begun, all.size()));
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
      "search the configs of a problem, or of a list, for the fastest one. Candidates are validated before they are "
      "timed, the fastest are raced alternately (forward ones with narrow and with wide scores, ranked by the "
      "geometric "
      "mean of both times), and every result is stored. The exit status is 130 after Ctrl-C",
      "attune tune --batch 4 --heads 16 --seq 4096 --head-dim 128 --causal\n"
      "attune tune --shapes shapes.csv --shard 1/4 --rigor patient --device all\n"
      "attune tune --heads 2 --seq 256 --head-dim 64 --device emulator --target a100 --max-candidates 5 --json");
  options->shapes.add_to(*verb, "whose problems take about as long together");
  verb->add_option(
      "--rigor", options->rigor,
      "how far the search goes: estimate (candidates are validated, not timed, and ranked by the cost model), "
      "measure (default), patient (many more trials), exhaustive (the whole space)");
  verb->add_option("--budget", options->budget,
                   "seconds for each problem after which no new trial begins, or 10m, or 2h (default 60; patient: 600; "
                   "exhaustive: no limit)");
  verb->add_option("--time-limit", options->time_limit,
                   "seconds for all problems together, or 50m, or 4h: none is begun later, and the budget of those "
                   "under way ends then. Their final races may take some seconds more. What is left has the status "
                   "not_begun, and the exit status is 1; the same command goes on");
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
  options->output.add_with_table_to(*verb);
  return {verb, [options] { return run(*options); }};
}

}  // namespace attune::cli
