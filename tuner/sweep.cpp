#include "tuner/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "generator/config_space.h"
#include "generator/error.h"
#include "generator/generate.h"
#include "tuner/compile_ahead.h"
#include "tuner/measurement_json.h"
#include "tuner/worker.h"
#include "tuner/worker_process.h"

namespace attune {
namespace {

using nlohmann::json;

constexpr double kEmulatorFlopsPerSecond = 0.3e9;
constexpr double kEmulatorSeconds = 1;  // of a check; larger problems are reduced
constexpr std::int64_t kReducedQueryTiles = 2, kReducedKeyTiles = 3;

// What a worker says about itself: the identity and provenance of its rows.
struct WorkerFacts {
  std::string device;
  int sm_count = 0;
  Toolchain toolchain;
  std::string templates_hash;
  bool can_time = false;
};

// The object of an answer; null if it is none.
json parse_answer(const std::string& text) {
  json answer = json::parse(text, nullptr, false);
  return answer.is_object() ? answer : json();
}

// The text of a field, empty if there is none.
std::string text_of(const json& answer, const char* key) {
  const auto found = answer.find(key);
  return found != answer.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// An answer that says that the environment is at fault, thrown as the worker saw it.
void throw_if_error(const json& answer) {
  const std::string error = text_of(answer, "error");
  if (error.empty()) return;
  const auto code = answer.find("code");
  const int number = code != answer.end() && code->is_number_integer() ? code->get<int>() : 0;
  const bool known =
      number >= static_cast<int>(ErrorCode::invalid_argument) && number <= static_cast<int>(ErrorCode::internal);
  throw Error(known ? static_cast<ErrorCode>(number) : ErrorCode::internal, error);
}

class Sweep {
 public:
  Sweep(const AttentionProblem& problem, const SweepOptions& options, TuningDatabase& database,
        const std::function<void(const SweepProgress&)>& on_progress)
      : problem_(problem), options_(options), database_(database), on_progress_(on_progress) {
    validate(problem_);
    options_.trial.cuda_ordinal = cuda_ordinal(options_.device);
    if (options_.command.empty()) options_.command = find_attune_command();
  }

  SweepResult run() {
    start_worker();
    result_.timed = facts_.can_time;
    list_candidates();
    find_rows_of_earlier_runs();
    begin_compiling_ahead();
    result_.ended_by = end_of_list_;
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      const auto earlier = earlier_rows_.find(canonical_text(candidates_[i].config));
      if (earlier != earlier_rows_.end()) {
        ++result_.reused;
        take(earlier->second, i, true);
        continue;
      }
      if (i > 0 && seconds() >= options_.budget_seconds) {
        result_.ended_by = "budget";
        break;
      }
      Measurement row = try_candidate(i);
      store(row);
      take(std::move(row), i, false);
    }
    ahead_.reset();
    result_.seconds = seconds();
    return std::move(result_);
  }

 private:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(); }

  json request(const char* op) const {
    return {{"op", op},
            {"device", options_.device},
            {"spec", device_spec_to_json(options_.spec)},
            {"problem", canonical_text(problem_)},
            {"seed", options_.seed}};
  }

  // A child that has opened the device and holds inputs and reference. Throws Error in the child's own words.
  void start_worker() {
    worker_ = std::make_unique<WorkerProcess>(options_.command);
    const WorkerAnswer answer = worker_->ask(request("prepare").dump(), options_.prepare_timeout_seconds);
    if (answer.kind != WorkerAnswer::Kind::answered) {
      throw Error(ErrorCode::driver, fmt::format("no worker could prepare {} on {}: {}", canonical_text(problem_),
                                                 options_.device, answer.text));
    }
    const json facts = parse_answer(answer.text);
    try {
      throw_if_error(facts);
      facts_.device = facts.at("device_name");
      facts_.sm_count = facts.at("sm_count");
      facts_.toolchain.compiler = facts.at("compiler");
      facts_.toolchain.driver = facts.at("driver");
      facts_.templates_hash = facts.at("templates_hash");
      facts_.can_time = facts.at("can_time");
    } catch (const json::exception&) {
      throw Error(ErrorCode::io, fmt::format("{} is no worker of this version: it answered {}", options_.command,
                                             shortened(answer.text)));
    }
  }

  static std::string shortened(const std::string& text) {
    constexpr std::size_t kShown = 200;
    return text.size() <= kShown ? text : text.substr(0, kShown) + "...";
  }

  // The default first, then the space in the cost model's order.
  void list_candidates() {
    Candidate first;
    first.config = default_config(problem_, options_.spec);
    first.cost = estimate_cost(problem_, first.config, options_.spec);
    candidates_.push_back(first);
    for (Candidate& candidate : config_space(problem_, options_.spec)) {
      if (candidate.feasible() && !(candidate.config == first.config)) candidates_.push_back(std::move(candidate));
    }
    end_of_list_ = "space exhausted";
    const auto limit = static_cast<std::size_t>(std::max(options_.max_candidates, 0));
    if (limit > 0 && candidates_.size() > limit) {
      candidates_.resize(limit);
      end_of_list_ = "max candidates";
    }
  }

  Rigor rigor() const { return facts_.can_time ? Rigor::measure : Rigor::estimate; }

  // A config that was tried with the same templates, compiler, driver and rigor would give the same again. What lay in
  // the machine's state that day, and not in the config, is tried again.
  void find_rows_of_earlier_runs() {
    for (Measurement& row : database_.find_all(problem_, facts_.device, facts_.sm_count)) {
      if (row.rigor != rigor() || row.templates_hash != facts_.templates_hash ||
          row.compiler != facts_.toolchain.compiler || row.driver != facts_.toolchain.driver) {
        continue;
      }
      const std::string config = canonical_text(row.config);
      if (row.status == MeasurementStatus::out_of_memory ||
          (row.status == MeasurementStatus::ok && row.ranking_us() <= 0)) {
        earlier_rows_.erase(config);
      } else {
        earlier_rows_.insert_or_assign(config, std::move(row));
      }
    }
  }

  // Compiling alone needs no inputs, and on a GPU no GPU.
  void begin_compiling_ahead() {
    const auto cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    // The emulator needs the cores itself.
    int workers = options_.compile_workers >= 0 ? options_.compile_workers : facts_.can_time ? cores : cores - 1;
    std::vector<bool> wanted;
    for (const Candidate& candidate : candidates_)
      wanted.push_back(!earlier_rows_.contains(canonical_text(candidate.config)));
    workers = std::min(workers, std::max(0, static_cast<int>(std::count(wanted.begin(), wanted.end(), true)) - 1));
    // The first one is the caller's: it is needed at once.
    const auto first = std::find(wanted.begin(), wanted.end(), true);
    if (first != wanted.end()) *first = false;
    ahead_ = std::make_unique<CompileAhead>(std::move(wanted), workers, [this] {
      auto worker = std::make_shared<std::unique_ptr<WorkerProcess>>(std::make_unique<WorkerProcess>(options_.command));
      return [this, worker](std::size_t index, const std::atomic<bool>& cancel) {
        return compile(index, *worker, &cancel);
      };
    });
  }

  CompileOutcome compile(std::size_t index, std::unique_ptr<WorkerProcess>& worker,
                         const std::atomic<bool>* cancel) const {
    json asked = request("compile");
    asked["problem"] = canonical_text(trial_problem(index));
    asked["config"] = canonical_text(candidates_[index].config);
    if (!worker) worker = std::make_unique<WorkerProcess>(options_.command);
    const WorkerAnswer answer = worker->ask(asked.dump(), options_.compile_timeout_seconds, cancel);
    if (answer.kind != WorkerAnswer::Kind::answered) {
      worker.reset();
      const bool late = answer.kind == WorkerAnswer::Kind::timed_out;
      return {late ? MeasurementStatus::compile_timed_out : MeasurementStatus::crashed,
              "while compiling: " + answer.text};
    }
    const json outcome = parse_answer(answer.text);
    throw_if_error(outcome);
    const auto status = parse_measurement_status(text_of(outcome, "status"));
    if (!status) {
      worker.reset();
      return {MeasurementStatus::crashed, "while compiling the worker answered " + shortened(answer.text)};
    }
    return {*status, text_of(outcome, "reason")};
  }

  // What is run to see whether a candidate is correct: the problem, or for the emulator one that it can run in a
  // second.
  AttentionProblem trial_problem(std::size_t index) const {
    return facts_.can_time ? problem_ : reduced_problem(problem_, candidates_[index].config);
  }

  Measurement try_candidate(std::size_t index) {
    if (!worker_) start_worker();
    auto compiled = ahead_->take(index);
    if (!compiled) compiled = compile(index, worker_, nullptr);
    Measurement row;
    if (compiled->status == MeasurementStatus::ok) {
      if (!worker_) start_worker();
      row = ask_for_trial(index);
    } else {
      row.status = compiled->status;
      row.reason = compiled->reason;
    }
    const AttentionProblem tried = trial_problem(index);
    row.problem = problem_;
    row.config = candidates_[index].config;
    row.device = facts_.device;
    row.sm_count = facts_.sm_count;
    row.rigor = rigor();
    row.predicted_us = candidates_[index].cost.microseconds;
    row.templates_hash = facts_.templates_hash;
    row.compiler = facts_.toolchain.compiler;
    row.driver = facts_.toolchain.driver;
    row.attune_version = attune_version();
    row.created_at = utc_now();
    if (!facts_.can_time) {
      row.protocol = "ranked by the cost model; checked on the emulator";
      if (!(tried == problem_)) row.protocol += " by " + canonical_text(tried);
    }
    return row;
  }

  Measurement ask_for_trial(std::size_t index) {
    const AttentionProblem tried = trial_problem(index);
    json asked = request("trial");
    asked["problem"] = canonical_text(tried);
    asked["config"] = canonical_text(candidates_[index].config);
    asked["options"] = trial_options_to_json(options_.trial);
    const WorkerAnswer answer = worker_->ask(asked.dump(), options_.trial_timeout_seconds);
    Measurement row;
    if (answer.kind != WorkerAnswer::Kind::answered) {
      worker_.reset();
      row.status =
          answer.kind == WorkerAnswer::Kind::timed_out ? MeasurementStatus::timed_out : MeasurementStatus::crashed;
      row.reason = answer.text;
      return row;
    }
    const json object = parse_answer(answer.text);
    throw_if_error(object);
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
        if (row.problem == tried && row.config == candidates_[index].config) return row;
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

  // The first row that cannot be stored is noted; the others after it are kept in the result alone, too.
  void store(const Measurement& row) {
    if (store_failed_) return;
    try {
      database_.append(row);
    } catch (const Error& error) {
      store_failed_ = true;
      result_.notes.push_back(
          fmt::format("results are not stored from {} on: {}", canonical_text(row.config), error.what()));
    }
  }

  void take(Measurement row, std::size_t index, bool reused) {
    if (index == 0) result_.default_measurement = row;
    if (row.status == MeasurementStatus::ok && row.ranking_us() > 0 &&
        (!result_.best || ranks_before(row, *result_.best))) {
      result_.best = row;
    }
    if (on_progress_) {
      SweepProgress progress;
      progress.done = static_cast<int>(index) + 1;
      progress.total = static_cast<int>(candidates_.size());
      progress.last = row;
      progress.reused = reused;
      progress.best = result_.best;
      progress.default_measurement = result_.default_measurement;
      progress.seconds = seconds();
      on_progress_(progress);
    }
    result_.rows.push_back(std::move(row));
  }

  const AttentionProblem& problem_;
  SweepOptions options_;
  TuningDatabase& database_;
  const std::function<void(const SweepProgress&)>& on_progress_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::unique_ptr<WorkerProcess> worker_;  // none after one that had to be killed
  WorkerFacts facts_;
  std::vector<Candidate> candidates_;
  std::string end_of_list_;
  std::map<std::string, Measurement> earlier_rows_;  // by config
  std::unique_ptr<CompileAhead> ahead_;
  bool store_failed_ = false;
  SweepResult result_;
};

}  // namespace

AttentionProblem reduced_problem(const AttentionProblem& problem, const KernelConfig& config) {
  constexpr double kLimit = kEmulatorFlopsPerSecond * kEmulatorSeconds;
  if (count_flops(problem) <= kLimit) return problem;
  // A few whole tiles and the same tail.
  const auto cut = [](std::int64_t length, std::int64_t block, std::int64_t tiles) {
    return std::min(length, tiles * block + length % block);
  };
  AttentionProblem reduced = problem;
  reduced.seq_q = cut(problem.seq_q, config.block_q, kReducedQueryTiles);
  reduced.seq_kv = cut(problem.seq_kv, config.block_kv, kReducedKeyTiles);
  if (problem.mask_offset == problem.seq_kv - problem.seq_q && problem.mask == MaskKind::causal) {
    reduced.mask_offset = reduced.seq_kv - reduced.seq_q;
  } else {
    reduced.mask_offset = std::clamp(problem.mask_offset, -reduced.seq_q, reduced.seq_kv);
  }
  // Two of everything that repeats, then one, until it is small enough.
  std::int64_t group = std::min<std::int64_t>(problem.heads_q / problem.heads_kv, 2);
  reduced.batch = std::min<std::int64_t>(problem.batch, 2);
  reduced.heads_kv = std::min<std::int64_t>(problem.heads_kv, 2);
  reduced.heads_q = reduced.heads_kv * group;
  for (std::int64_t* repeats : {&reduced.batch, &reduced.heads_kv, &group}) {
    if (count_flops(reduced) <= kLimit) break;
    *repeats = 1;
    reduced.heads_q = reduced.heads_kv * group;
  }
  return reduced;
}

SweepResult sweep(const AttentionProblem& problem, const SweepOptions& options, TuningDatabase& database,
                  const std::function<void(const SweepProgress&)>& on_progress) {
  return Sweep(problem, options, database, on_progress).run();
}

}  // namespace attune
