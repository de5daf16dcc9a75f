#include "tuner/sweep/sweep_lane.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "generator/error.h"
#include "runtime/system/json_text.h"
#include "tuner/database/measurement_json.h"
#include "tuner/trial/worker.h"
#include "tuner/trial/worker_answer.h"

namespace attune {
namespace {

using nlohmann::json;

constexpr int kMostUnprepared = 3;  // workers one after the other: then it is not the candidates

std::string shortened(const std::string& text) {
  constexpr std::size_t kShown = 200;
  return text.size() <= kShown ? text : fmt::format("{}...", std::string_view(text).substr(0, kShown));
}

// The lists of numbers of each entrant.
template <typename Number, typename Read>
std::vector<std::vector<Number>> lists_of(const JsonView& entrants, Read read) {
  std::vector<std::vector<Number>> lists(entrants.size());
  for (std::size_t i = 0; i < lists.size(); ++i) {
    const JsonView list = entrants.at(i);
    for (std::size_t k = 0; k < list.size(); ++k) lists[i].push_back(read(list.at(k)));
  }
  return lists;
}

RaceTimes no_times(std::string complaint) {
  RaceTimes times;
  times.complaint = std::move(complaint);
  return times;
}

// Times of `configs` configs, as many of each, `wide` ones too exactly if they were asked for; or the complaint that
// they are none.
RaceTimes race_times_from_json(const json& object, std::size_t configs, bool wide) {
  const JsonView said(object, "the worker's answer", "/race");
  RaceTimes times;
  const auto microseconds = [](const JsonView& us) { return us.number(); };
  times.samples_us = lists_of<double>(said.at("samples_us"), microseconds);
  if (wide) times.wide_samples_us = lists_of<double>(said.at("wide_samples_us"), microseconds);
  times.clocks_mhz = lists_of<int>(said.at("clocks_mhz"), [](const JsonView& mhz) { return mhz.whole<int>(0); });
  const auto is_time = [](double us) { return std::isfinite(us) && us > 0; };
  const auto complete = [&](const auto& lists) {
    return lists.size() == configs && std::all_of(lists.begin(), lists.end(), [&](const auto& list) {
             return !list.empty() && list.size() == times.samples_us.front().size();
           });
  };
  const auto all_times = [&](const std::vector<std::vector<double>>& lists) {
    return std::all_of(lists.begin(), lists.end(),
                       [&](const std::vector<double>& list) { return std::all_of(list.begin(), list.end(), is_time); });
  };
  if (!complete(times.samples_us) || !complete(times.clocks_mhz) || !all_times(times.samples_us) ||
      (wide && !complete(times.wide_samples_us)) || !all_times(times.wide_samples_us) ||
      (!wide && object.contains("wide_samples_us")))
    return no_times("the worker answered with times of another race");
  times.protocol = text_of(object, "protocol");
  return times;
}

}  // namespace

SweepLane::SweepLane(const AttentionProblem& problem, const SweepOptions& options, std::string device)
    : problem_(problem), options_(options), device_(std::move(device)), ordinal_(cuda_ordinal(device_)) {}

json SweepLane::request(const char* op) const {
  return {{"op", op},
          {"device", device_},
          {"spec", device_spec_to_json(options_.spec)},
          {"problem", canonical_text(problem_)},
          {"seed", options_.seed}};
}

WorkerFacts SweepLane::start() {
  worker_ = std::make_unique<WorkerProcess>(options_.command);
  prepared_ = false;
  const json said = ask_once("identify");
  WorkerFacts facts;
  try {
    const JsonView told(said, "its answer");
    facts.device = told.at("device_name").text();
    facts.sm_count = told.at("sm_count").whole<int>(1);
    facts.toolchain.compiler = told.at("compiler").text();
    facts.toolchain.driver = told.at("driver").text();
    facts.can_time = told.at("can_time").boolean();
    node_ = node_gpu_from_json(said);
  } catch (const Error& error) {
    throw Error(ErrorCode::io, fmt::format("{} is no worker of this version: it answered {} ({})", options_.command,
                                           shortened(json_line(said)), error.what()));
  }
  return facts;
}

// Inputs and reference take longer than a trial may.
void SweepLane::prepare() {
  if (!worker_) start();
  if (!prepared_) ask_once("prepare");
  prepared_ = true;
}

// For what every worker must be able to do.
json SweepLane::ask_once(const char* op) {
  const WorkerAnswer answer = worker_->ask(json_line(request(op)), options_.prepare_timeout_seconds, options_.stop);
  if (answer.kind != WorkerAnswer::Kind::answered) {
    throw Error(ErrorCode::driver,
                fmt::format("no worker could prepare {} on {}: {}", canonical_text(problem_), device_, answer.text));
  }
  json said = parse_worker_answer(answer.text);
  throw_if_error(said);
  if (!said.is_object()) {
    throw Error(ErrorCode::driver, fmt::format("{} is no worker of this version: it answered {}", options_.command,
                                               shortened(answer.text)));
  }
  return said;
}

bool SweepLane::prepare_for_trial(Measurement& row) {
  try {
    prepare();
    unprepared_ = 0;
    return true;
  } catch (const Error& error) {
    worker_.reset();
    if (stop_asked() || is_of_environment(error.code()) || ++unprepared_ == kMostUnprepared) throw;
    row.status = MeasurementStatus::crashed;
    row.reason = error.what();
    return false;
  }
}

CompileOutcome SweepLane::compile(const AttentionProblem& tried, const KernelConfig& config) {
  return compile_in(worker_, tried, config, options_.stop);
}

CompileOutcome SweepLane::compile_in(std::unique_ptr<WorkerProcess>& worker, const AttentionProblem& tried,
                                     const KernelConfig& config, const std::atomic<bool>* cancel) const {
  json asked = request("compile");
  asked["problem"] = canonical_text(tried);
  asked["config"] = canonical_text(config);
  const WorkerAnswer answer = worker->ask(json_line(asked), options_.compile_timeout_seconds, cancel);
  if (answer.kind != WorkerAnswer::Kind::answered) {
    worker.reset();
    const bool late = answer.kind == WorkerAnswer::Kind::timed_out;
    return {late ? MeasurementStatus::compile_timed_out : MeasurementStatus::crashed,
            "while compiling: " + answer.text};
  }
  const json outcome = parse_worker_answer(answer.text);
  throw_if_environment_failed(outcome);
  const auto status = parse_measurement_status(text_of(outcome, "status"));
  if (!status) {
    worker.reset();
    return {MeasurementStatus::crashed, "while compiling the worker answered " + shortened(answer.text)};
  }
  return {*status, text_of(outcome, "reason")};
}

Measurement SweepLane::try_config(const AttentionProblem& tried, const KernelConfig& config, double hopeless_us) {
  TrialOptions trial = options_.trial;
  trial.cuda_ordinal = ordinal_;
  trial.hopeless_us = hopeless_us;
  json asked = request("trial");
  asked["problem"] = canonical_text(tried);
  asked["config"] = canonical_text(config);
  asked["options"] = trial_options_to_json(trial);
  const WorkerAnswer answer = worker_->ask(json_line(asked), options_.trial_timeout_seconds, options_.stop);
  Measurement row;
  if (answer.kind != WorkerAnswer::Kind::answered) {
    worker_.reset();
    if (stop_asked()) throw Interrupted();
    row.status =
        answer.kind == WorkerAnswer::Kind::timed_out ? MeasurementStatus::timed_out : MeasurementStatus::crashed;
    row.reason = answer.text;
    return row;
  }
  const json object = parse_worker_answer(answer.text);
  throw_if_environment_failed(object);
  if (object.contains("last")) worker_.reset();
  if (const auto failed = parse_measurement_status(text_of(object, "failed"));
      failed && *failed != MeasurementStatus::ok) {
    row.status = *failed;
    row.reason = text_of(object, "reason");
    return row;
  }
  try {
    if (object.contains("measurement")) {
      row = measurement_from_json(object["measurement"]);
      if (row.problem == tried && row.config == config) return row;
    }
  } catch (const Error&) {
    // Told below, with what it answered.
  }
  // Nothing else that it says can be trusted.
  worker_.reset();
  row = Measurement();
  row.status = MeasurementStatus::crashed;
  row.reason = "the worker answered something that is no measurement of this config: " + shortened(answer.text);
  return row;
}

RaceTimes SweepLane::race(const std::vector<KernelConfig>& configs, const RaceOptions& options) {
  json asked = request("race");
  asked["configs"] = json::array();
  for (const KernelConfig& config : configs) asked["configs"].push_back(canonical_text(config));
  RaceOptions here = options;
  // With wide scores each config runs twice a round.
  const double runs = static_cast<double>(configs.size()) * (options.wide ? 2 : 1);
  here.cuda_ordinal = ordinal_;
  asked["options"] = race_options_to_json(here);
  try {
    prepare();
    const WorkerAnswer answer = worker_->ask(json_line(asked), options_.trial_timeout_seconds * runs, options_.stop);
    if (answer.kind != WorkerAnswer::Kind::answered) {
      worker_.reset();
      return no_times(answer.text);
    }
    const json object = parse_worker_answer(answer.text);
    throw_if_error(object);
    if (object.contains("last")) worker_.reset();
    if (!object.contains("race"))
      return no_times(object.contains("reason") ? text_of(object, "reason") : "no times came of it");
    return race_times_from_json(object["race"], configs.size(), options.wide);
  } catch (const Error& error) {
    worker_.reset();  // who answers something else than times may go on doing so
    return no_times(error.what());
  }
}

}  // namespace attune
