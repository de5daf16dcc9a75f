#include "tuner/sweep/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <utility>

#include "generator/error.h"
#include "generator/generate.h"
#include "generator/problem/mask_geometry.h"
#include "runtime/system/json_text.h"
#include "tuner/database/measurement_json.h"
#include "tuner/search/race.h"
#include "tuner/search/searcher.h"
#include "tuner/trial/compile_ahead.h"
#include "tuner/trial/worker.h"
#include "tuner/trial/worker_answer.h"
#include "tuner/trial/worker_process.h"

namespace attune {
namespace {

using nlohmann::json;

constexpr double kEmulatorFlopsPerSecond = 0.3e9;
constexpr double kEmulatorSeconds = 1;  // of a check; larger problems are reduced
constexpr std::int64_t kReducedQueryTiles = 2, kReducedKeyTiles = 3;
constexpr int kNeighbours = 3;  // whose winners are seeds
// Trials scatter by 2 to 6 % against the race: what begins so much slower than the best does not win it.
constexpr double kHopelessRatio = 1.2;
constexpr int kMostUnprepared = 3;  // workers one after the other: then it is not the candidates

// Between two attempts to store what could not be stored, and how many there are when the sweep ends.
constexpr std::chrono::seconds kPauseAfterFailure{1};
constexpr int kLastAttempts = 3;

// What a worker says about itself: the identity and provenance of its rows.
struct WorkerFacts {
  std::string device;
  int sm_count = 0;
  Toolchain toolchain;
  std::map<std::string, std::string> templates_hash;  // by family
  bool can_time = false;
};

// What ends a sweep that was asked to stop; never leaves this file.
struct Interrupted {};

// A child that tries candidates on one device.
struct Lane {
  std::string device;
  int ordinal = 0;
  std::unique_ptr<WorkerProcess> worker;  // none after one that had to be killed
  bool prepared = false;                  // the worker holds inputs and reference
  int unprepared = 0;                     // workers in a row that could not be prepared
};

std::string shortened(const std::string& text) {
  constexpr std::size_t kShown = 200;
  return text.size() <= kShown ? text : text.substr(0, kShown) + "...";
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

class Sweep {
 public:
  Sweep(const AttentionProblem& problem, const SweepOptions& options, TuningDatabase& database,
        const std::function<void(const SweepProgress&)>& on_progress)
      : problem_(problem), options_(options), database_(database), on_progress_(on_progress) {
    validate(problem_);
    for (const std::string& device : device_names(options_.device))
      lanes_.push_back({device, cuda_ordinal(device), {}});
    if (options_.command.empty()) options_.command = find_attune_command();
  }

  SweepResult run() {
    facts_ = start_worker(lanes_.front());
    std::vector<Candidate> space = feasible_space();
    settle_effort(space.size());
    begin_search(std::move(space));
    find_rows_of_earlier_runs();
    begin_compiling_ahead();
    try {
      try_candidates();
    } catch (...) {
      save_the_rest();
      throw;
    }
    ahead_.reset();
    race();
    save_the_rest();
    result_.seconds = seconds();
    return std::move(result_);
  }

 private:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(); }
  bool stop_asked() const { return options_.stop && *options_.stop; }

  json request(const char* op, const Lane& lane) const {
    return {{"op", op},
            {"device", lane.device},
            {"spec", device_spec_to_json(options_.spec)},
            {"problem", canonical_text(problem_)},
            {"seed", options_.seed}};
  }

  // A child that has opened the device. Throws Error in the child's own words.
  WorkerFacts start_worker(Lane& lane) const {
    lane.worker = std::make_unique<WorkerProcess>(options_.command);
    lane.prepared = false;
    const json said = ask_once(lane, "identify");
    WorkerFacts facts;
    try {
      const JsonView told(said, "its answer");
      facts.device = told.at("device_name").text();
      facts.sm_count = told.at("sm_count").whole<int>(1);
      facts.toolchain.compiler = told.at("compiler").text();
      facts.toolchain.driver = told.at("driver").text();
      const JsonView hashes = told.at("templates_hash");
      for (const auto& [family, hash] : hashes.json().items()) facts.templates_hash[family] = hashes.at(family).text();
      facts.can_time = told.at("can_time").boolean();
    } catch (const Error& error) {
      throw Error(ErrorCode::io, fmt::format("{} is no worker of this version: it answered {} ({})", options_.command,
                                             shortened(json_line(said)), error.what()));
    }
    return facts;
  }

  // A worker that holds inputs and reference, which takes longer than a trial may.
  void prepare_worker(Lane& lane) const {
    if (!lane.worker) start_worker(lane);
    if (!lane.prepared) ask_once(lane, "prepare");
    lane.prepared = true;
  }

  // For what every worker must be able to do.
  json ask_once(Lane& lane, const char* op) const {
    const WorkerAnswer answer =
        lane.worker->ask(json_line(request(op, lane)), options_.prepare_timeout_seconds, options_.stop);
    if (answer.kind != WorkerAnswer::Kind::answered) {
      throw Error(ErrorCode::driver, fmt::format("no worker could prepare {} on {}: {}", canonical_text(problem_),
                                                 lane.device, answer.text));
    }
    json said = parse_worker_answer(answer.text);
    throw_if_error(said);
    if (!said.is_object()) {
      throw Error(ErrorCode::driver, fmt::format("{} is no worker of this version: it answered {}", options_.command,
                                                 shortened(answer.text)));
    }
    return said;
  }

  // Times of different models are not to be mixed.
  void start_further_worker(Lane& lane) const {
    const WorkerFacts facts = start_worker(lane);
    if (facts.device != facts_.device || facts.sm_count != facts_.sm_count) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{} is an {} with {} SMs, {} an {} with {}: one sweep needs GPUs of one model",
                              lanes_.front().device, facts_.device, facts_.sm_count, lane.device, facts.device,
                              facts.sm_count));
    }
  }

  void settle_effort(std::size_t space_size) {
    rigor_ = facts_.can_time ? options_.rigor : Rigor::estimate;
    effort_ = effort_of(rigor_, space_size);
    if (options_.patience) effort_.patience = *options_.patience;
    if (options_.budget_seconds) effort_.budget_seconds = *options_.budget_seconds;
    options_.trial.sample_seconds = effort_.sample_seconds;
    options_.trial.time = rigor_ != Rigor::estimate;
    result_.timed = options_.trial.time;
    result_.rigor = rigor_;
    result_.space_size = space_size;
  }

  std::vector<Candidate> feasible_space() const {
    std::vector<Candidate> space;
    for (Candidate& candidate : config_space(problem_, options_.spec, options_.extent)) {
      if (candidate.feasible()) space.push_back(std::move(candidate));
    }
    return space;
  }

  void begin_search(std::vector<Candidate> space) {
    default_ = default_config(problem_, options_.spec);
    std::vector<KernelConfig> seeds = {default_};
    const TuningDatabase* const known[] = {&database_, options_.presets.get()};
    for (const TuningDatabase* from : known) {
      if (!from) continue;
      const auto best = from->best(problem_, facts_.device, facts_.sm_count);
      if (!best) continue;
      seeds.push_back(best->config);
      const auto is_it = [&](const Candidate& candidate) { return candidate.config == best->config; };
      if (from == &database_ && !best->race.empty() && std::any_of(space.begin(), space.end(), is_it))
        standing_ = best->config;
    }
    for (const TuningDatabase* from : known) {
      if (!from) continue;
      for (const KernelConfig& config :
           from->winners_of_neighbours(problem_, facts_.device, facts_.sm_count, kNeighbours)) {
        seeds.push_back(config);
      }
    }
    for (const KernelConfig& config : published_seeds(problem_, space)) seeds.push_back(config);
    searcher_ = std::make_unique<Searcher>(std::move(space), seeds,
                                           SearchLimits{.model_top = effort_.model_top, .patience = effort_.patience});
  }

  std::string templates_hash_of(const KernelConfig& config) const {
    const auto found = facts_.templates_hash.find(std::string(to_string(config.family)));
    return found != facts_.templates_hash.end() ? found->second : std::string();
  }

  // A config that was tried with the same templates, compiler, driver and at least this rigor would give the same
  // again. What lay in the machine's state that day, and not in the config, is tried again.
  void find_rows_of_earlier_runs() {
    for (Measurement& row : database_.find_all(problem_, facts_.device, facts_.sm_count)) {
      if (row.rigor < rigor_ || (row.rigor == Rigor::estimate) != (rigor_ == Rigor::estimate) ||
          row.templates_hash != templates_hash_of(row.config) || row.compiler != facts_.toolchain.compiler ||
          row.driver != facts_.toolchain.driver) {
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
    standing_is_reused_ = standing_ && earlier_rows_.contains(canonical_text(*standing_));
    // A space without the default, or a default that is not among its first, keeps no row waiting.
    default_is_stored_ = searcher_->upcoming(1) != std::vector{index_of_default()};
  }

  // The space's size if it is not in it.
  std::size_t index_of_default() const {
    const std::vector<Candidate>& space = searcher_->space();
    const auto found = std::find_if(space.begin(), space.end(),
                                    [&](const Candidate& candidate) { return candidate.config == default_; });
    return static_cast<std::size_t>(found - space.begin());
  }

  // Compiling alone needs no inputs, and on a GPU no GPU.
  void begin_compiling_ahead() {
    const auto cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    // The emulator needs the cores itself.
    int workers = options_.compile_workers >= 0 ? options_.compile_workers : facts_.can_time ? cores : cores - 1;
    if (options_.max_candidates > 0) workers = std::min(workers, options_.max_candidates - 1);
    compile_workers_ = static_cast<std::size_t>(workers);
    ahead_ = std::make_unique<CompileAhead>(searcher_->space().size(), workers, [this] {
      const auto worker = std::make_shared<std::unique_ptr<WorkerProcess>>();
      return [this, worker](std::size_t index, const std::atomic<bool>& cancel) {
        if (!*worker) {
          *worker = std::make_unique<WorkerProcess>(options_.command);
          (*worker)->limit_memory(WorkerProcess::kCompilerBytes);
        }
        return compile(index, *worker, &cancel);
      };
    });
  }

  // Enough to keep every process busy; what lies beyond may never be reached.
  void feed_compilers() {
    if (compile_workers_ == 0) return;
    constexpr std::size_t kAheadPerWorker = 3;
    std::size_t ahead = kAheadPerWorker * compile_workers_;
    const auto limit = static_cast<std::size_t>(std::max(options_.max_candidates, 0));
    if (limit > 0) ahead = std::min(ahead, limit - std::min(limit, claimed_));
    std::vector<std::size_t> wanted;
    for (const std::size_t index : searcher_->upcoming(ahead)) {
      if (!earlier_rows_.contains(canonical_text(searcher_->space()[index].config))) wanted.push_back(index);
    }
    ahead_->want(std::move(wanted));
  }

  CompileOutcome compile(std::size_t index, std::unique_ptr<WorkerProcess>& worker,
                         const std::atomic<bool>* cancel) const {
    json asked = request("compile", lanes_.front());
    asked["problem"] = canonical_text(trial_problem(index));
    asked["config"] = canonical_text(searcher_->space()[index].config);
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

  // What is run to see whether a candidate is correct: the problem, or for the emulator one that it can run in a
  // second.
  AttentionProblem trial_problem(std::size_t index) const {
    return facts_.can_time ? problem_ : reduced_problem(problem_, searcher_->space()[index].config);
  }

  // The first lane stays in this thread: a worker ends with the thread that made it, and the race needs one.
  void try_candidates() {
    {
      const std::lock_guard lock(mutex_);
      feed_compilers();
    }
    std::vector<std::thread> threads;
    for (std::size_t i = 1; i < lanes_.size(); ++i) {
      threads.emplace_back([this, i] {
        work(lanes_[i]);
        lanes_[i].worker.reset();
      });
    }
    work(lanes_.front());
    for (std::thread& thread : threads) thread.join();
    if (trouble_) std::rethrow_exception(trouble_);
  }

  void work(Lane& lane) {
    try {
      if (!lane.worker) start_further_worker(lane);
      while (const auto index = claim()) {
        Measurement row = try_candidate(lane, *index);
        const std::lock_guard lock(mutex_);
        store_trial(row);
        take(std::move(row), *index, false);
        feed_compilers();
      }
    } catch (const Interrupted&) {
      const std::lock_guard lock(mutex_);
      result_.ended_by = "interrupted";
    } catch (...) {
      const std::lock_guard lock(mutex_);
      // A worker that could not start because the sweep was asked to stop is no trouble.
      if (stop_asked()) {
        result_.ended_by = "interrupted";
      } else if (!trouble_) {
        trouble_ = std::current_exception();
      }
    }
  }

  // The next candidate of a lane; those with a row of an earlier run are taken on the way.
  std::optional<std::size_t> claim() {
    const std::lock_guard lock(mutex_);
    while (!trouble_) {
      const bool begun = claimed_ > 0;
      const auto end = [&](const char* by) {
        if (result_.ended_by.empty()) result_.ended_by = by;
        return std::nullopt;
      };
      if (stop_asked()) return end("interrupted");
      if (options_.max_candidates > 0 && claimed_ >= static_cast<std::size_t>(options_.max_candidates))
        return end("max candidates");
      const auto index = searcher_->next();
      if (!index) return end(searcher_->ended_by().data());
      const auto earlier = earlier_rows_.find(canonical_text(searcher_->space()[*index].config));
      if (earlier == earlier_rows_.end()) {
        if (begun && effort_.budget_seconds > 0 && seconds() >= effort_.budget_seconds) return end("budget");
        ++claimed_;
        return index;
      }
      ++claimed_;
      ++result_.reused;
      store_reused(earlier->second);
      take(earlier->second, *index, true);
    }
    return std::nullopt;
  }

  Measurement try_candidate(Lane& lane, std::size_t index) {
    Measurement row = outcome_of_trial(lane, index);
    const Candidate& candidate = searcher_->space()[index];
    const AttentionProblem tried = trial_problem(index);
    row.problem = problem_;
    row.config = candidate.config;
    row.device = facts_.device;
    row.sm_count = facts_.sm_count;
    row.rigor = rigor_;
    row.predicted_us = candidate.cost.microseconds;
    row.templates_hash = templates_hash_of(row.config);
    row.compiler = facts_.toolchain.compiler;
    row.driver = facts_.toolchain.driver;
    row.attune_version = attune_version();
    row.created_at = utc_now();
    if (rigor_ == Rigor::estimate) {
      row.protocol = fmt::format("ranked by the cost model; checked on the {}", facts_.can_time ? "GPU" : "emulator");
      if (!(tried == problem_)) row.protocol += " by " + canonical_text(tried);
    }
    return row;
  }

  // What the workers say of it, whatever they say.
  Measurement outcome_of_trial(Lane& lane, std::size_t index) {
    Measurement row;
    if (!prepared_for_trial(lane, row)) return row;
    auto compiled = ahead_->take(index);
    if (!compiled) compiled = compile(index, lane.worker, options_.stop);
    if (stop_asked() && compiled->status != MeasurementStatus::ok) throw Interrupted();
    if (compiled->status != MeasurementStatus::ok) {
      row.status = compiled->status;
      row.reason = compiled->reason;
      return row;
    }
    return prepared_for_trial(lane, row) ? ask_for_trial(lane, index) : row;
  }

  // False, with the reason in the row, if this worker cannot be prepared; one after the other ends the sweep.
  bool prepared_for_trial(Lane& lane, Measurement& row) const {
    try {
      prepare_worker(lane);
      lane.unprepared = 0;
      return true;
    } catch (const Error& error) {
      lane.worker.reset();
      if (stop_asked() || is_of_environment(error.code()) || ++lane.unprepared == kMostUnprepared) throw;
      row.status = MeasurementStatus::crashed;
      row.reason = error.what();
      return false;
    }
  }

  Measurement ask_for_trial(Lane& lane, std::size_t index) {
    const KernelConfig& config = searcher_->space()[index].config;
    const AttentionProblem tried = trial_problem(index);
    TrialOptions trial = options_.trial;
    trial.cuda_ordinal = lane.ordinal;
    trial.hopeless_us = hopeless_us();
    json asked = request("trial", lane);
    asked["problem"] = canonical_text(tried);
    asked["config"] = canonical_text(config);
    asked["options"] = trial_options_to_json(trial);
    const WorkerAnswer answer = lane.worker->ask(json_line(asked), options_.trial_timeout_seconds, options_.stop);
    Measurement row;
    if (answer.kind != WorkerAnswer::Kind::answered) {
      lane.worker.reset();
      if (stop_asked()) throw Interrupted();
      row.status =
          answer.kind == WorkerAnswer::Kind::timed_out ? MeasurementStatus::timed_out : MeasurementStatus::crashed;
      row.reason = answer.text;
      return row;
    }
    const json object = parse_worker_answer(answer.text);
    throw_if_environment_failed(object);
    if (object.contains("last")) lane.worker.reset();
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
    lane.worker.reset();
    row = Measurement();
    row.status = MeasurementStatus::crashed;
    row.reason = "the worker answered something that is no measurement of this config: " + shortened(answer.text);
    return row;
  }

  double hopeless_us() {
    const std::lock_guard lock(mutex_);
    return rigor_ != Rigor::estimate && result_.best ? kHopelessRatio * time_of(*result_.best) : 0;
  }

  // A trial of the fastest of many looks faster than it is. So until the race has decided, and if it never takes place
  // (a failure, a signal, a power cut), the database must say what stands: the config that a race elected before this
  // sweep, else the default. Its trial is stored as elected, by a race of one row; rows of further lanes wait for that
  // of the default.
  void store_trial(const Measurement& row) {
    const bool is_default = row.config == default_;
    if (!default_is_stored_ && !is_default) {
      waiting_.push_back(row);
      return;
    }
    if (elects(row)) {
      store(elected(row));
    } else {
      store({row});
    }
    if (!default_is_stored_) {
      default_is_stored_ = true;
      for (const Measurement& waiting : std::exchange(waiting_, {})) store_trial(waiting);
    }
  }

  // An earlier version, or a sweep that was killed, may have left the default's row without its election.
  void store_reused(const Measurement& row) {
    if (row.config == default_ && row.race.empty() && elects(row)) store(elected(row));
    if (row.config == default_ && !default_is_stored_) {
      default_is_stored_ = true;
      for (const Measurement& waiting : std::exchange(waiting_, {})) store_trial(waiting);
    }
  }

  bool elects(const Measurement& row) const {
    if (rigor_ == Rigor::estimate || row.status != MeasurementStatus::ok || time_of(row) <= 0) return false;
    if (standing_ && row.config == *standing_) return true;
    return row.config == default_ && !standing_is_reused_;
  }

  static std::vector<Measurement> elected(Measurement row) {
    row.race = row.created_at = utc_now();
    row.place = 1;
    row.sequence = 0;
    if (!is_election(row)) row.protocol += kUntilARace;
    return {std::move(row)};
  }

  // At once; the rows of a race together, or none of them. What cannot be stored waits for the next, and for the end: a
  // lock ends, and space is freed.
  void store(std::vector<Measurement> rows) {
    tried_ += rows.size();
    unsaved_.push_back(std::move(rows));
    if (std::chrono::steady_clock::now() >= next_saving_) save();
  }

  // Oldest first. What is wrong with a row is its own; what is wrong with the database concerns those after it, too.
  void save() {
    std::vector<std::vector<Measurement>> left;
    bool database_fails = false;
    for (std::vector<Measurement>& rows : unsaved_) {
      if (!database_fails) {
        try {
          database_.append(rows);
          continue;
        } catch (const NotStored& error) {
          not_saved_because_ = error.what();
          database_fails = error.fault() == NotStored::Fault::database;
        }
      }
      left.push_back(std::move(rows));
    }
    unsaved_ = std::move(left);
    // A lock that is waited for takes the time of trials.
    if (database_fails) next_saving_ = std::chrono::steady_clock::now() + kPauseAfterFailure;
  }

  void save_the_rest() {
    for (int attempt = 1; attempt <= kLastAttempts && !unsaved_.empty(); ++attempt) {
      if (attempt > 1) std::this_thread::sleep_for(kPauseAfterFailure);
      save();
      if (database_.read_only() || stop_asked()) break;
    }
    if (unsaved_.empty()) return;
    for (std::vector<Measurement>& rows : unsaved_)
      result_.unsaved.insert(result_.unsaved.end(), std::move_iterator(rows.begin()), std::move_iterator(rows.end()));
    result_.not_stored = true;
    result_.notes.push_back(
        fmt::format("{} of {} results are not stored: {}", result_.unsaved.size(), tried_, not_saved_because_));
  }

  // What candidates are compared by before the race.
  double time_of(const Measurement& row) const { return rigor_ == Rigor::estimate ? row.predicted_us : row.median_us; }

  void take(Measurement row, std::size_t index, bool reused) {
    const double time = row.status == MeasurementStatus::ok ? time_of(row) : 0;
    searcher_->tell(index, time);
    if (row.config == default_) result_.default_measurement = row;
    if (time > 0 && (!result_.best || time < time_of(*result_.best))) result_.best = row;
    result_.rows.push_back(row);
    if (on_progress_) on_progress_(progress(std::move(row), reused));
  }

  SweepProgress progress(Measurement row, bool reused) const {
    SweepProgress progress;
    progress.done = static_cast<int>(result_.rows.size());
    progress.total = static_cast<int>(searcher_->planned());
    if (options_.max_candidates > 0) progress.total = std::min(progress.total, options_.max_candidates);
    progress.last = std::move(row);
    progress.reused = reused;
    progress.best = result_.best;
    progress.default_measurement = result_.default_measurement;
    progress.seconds = seconds();
    if (const int tried = progress.done - result_.reused; tried > 0) {
      progress.seconds_left = progress.seconds / tried * (progress.total - progress.done);
      if (effort_.budget_seconds > 0) {
        progress.seconds_left =
            std::min(*progress.seconds_left, std::max(0.0, effort_.budget_seconds - progress.seconds));
      }
    }
    progress.compile_queue = ahead_->pending();
    return progress;
  }

  // The race between these rows took place already, in an earlier run.
  static bool raced_together(const std::vector<Measurement>& rows) {
    std::set<int> places;
    for (const Measurement& row : rows) {
      if (row.race.empty() || row.race != rows.front().race) return false;
      places.insert(row.place);
    }
    return rows.size() > 1 && places.size() == rows.size() && *places.begin() == 1;
  }

  // The finalists in turns. Without a race, or if it fails, what stands is elected.
  void race() {
    if (rigor_ == Rigor::estimate) return;
    FinalRace race(result_.rows, default_, effort_.race_seconds);
    std::vector<Measurement> rows;
    for (const std::size_t i : race.entrants()) rows.push_back(result_.rows[i]);
    result_.race_reused = raced_together(rows);
    if (result_.race_reused) {
      // And others, who lost.
      const std::string together = rows.front().race;
      rows.clear();
      std::copy_if(result_.rows.begin(), result_.rows.end(), std::back_inserter(rows),
                   [&](const Measurement& row) { return row.race == together; });
      std::sort(rows.begin(), rows.end(), [](const Measurement& a, const Measurement& b) { return a.place < b.place; });
    } else if (rows.empty() || result_.ended_by == "interrupted" || !run_race(race, rows)) {
      elect_what_stands();
      return;
    }
    result_.best = rows.front();
    for (const Measurement& row : rows) {
      if (row.config == default_) result_.default_measurement = row;
    }
    result_.finalists = std::move(rows);
  }

  // Batches of the race, until it is over: `rows` become those of the finalists by place, and are stored. False, with a
  // note, if it failed.
  bool run_race(FinalRace& race, std::vector<Measurement>& rows) {
    const std::string begun = utc_now();
    std::string protocol;
    while (const auto batch = race.next()) {
      const std::string trouble = run_batch(race, *batch, protocol);
      if (trouble.empty() || (!stop_asked() && race.narrow())) continue;
      result_.notes.push_back(
          fmt::format("the final race did not take place ({}): of the trials alone none is elected, for their times "
                      "scatter by a few percent",
                      stop_asked() ? "interrupted" : trouble));
      return false;
    }
    rows.clear();
    for (FinalRace::Finalist& finalist : race.standings()) {
      Measurement& row = rows.emplace_back(result_.rows[finalist.trial]);
      row.race = begun;
      row.place = static_cast<int>(rows.size());
      row.rigor = rigor_;
      row.samples_us = std::move(finalist.samples_us);
      row.clocks_mhz = std::move(finalist.clocks_mhz);
      row.protocol = protocol;
      row.created_at = utc_now();
      row.sequence = 0;
      row.summarize();
    }
    store(rows);
    return true;
  }

  // Why it failed; empty if it did not.
  std::string run_batch(FinalRace& race, const FinalRace::Batch& batch, std::string& protocol) {
    Lane& lane = lanes_.front();
    json asked = request("race", lane);
    asked["configs"] = json::array();
    for (const std::size_t i : batch.entrants) asked["configs"].push_back(canonical_text(result_.rows[i].config));
    RaceOptions options;
    options.seconds = batch.seconds;
    options.min_rounds = batch.min_rounds;
    options.cuda_ordinal = lane.ordinal;
    asked["options"] = race_options_to_json(options);
    try {
      prepare_worker(lane);
      const WorkerAnswer answer = lane.worker->ask(
          json_line(asked), options_.trial_timeout_seconds * static_cast<double>(batch.entrants.size()), options_.stop);
      if (answer.kind != WorkerAnswer::Kind::answered) {
        lane.worker.reset();
        return answer.text;
      }
      const json object = parse_worker_answer(answer.text);
      throw_if_error(object);
      if (object.contains("last")) lane.worker.reset();
      if (!object.contains("race"))
        return object.contains("reason") ? text_of(object, "reason") : "no times came of it";
      const JsonView times(object["race"], "the worker's answer", "/race");
      const auto samples = lists_of<double>(times.at("samples_us"), [](const JsonView& us) { return us.number(); });
      const auto clocks = lists_of<int>(times.at("clocks_mhz"), [](const JsonView& mhz) { return mhz.whole<int>(0); });
      const auto is_time = [](double us) { return std::isfinite(us) && us > 0; };
      const auto complete = [&](const auto& lists) {
        return lists.size() == batch.entrants.size() && std::all_of(lists.begin(), lists.end(), [&](const auto& list) {
                 return !list.empty() && list.size() == samples.front().size();
               });
      };
      const bool all_times = std::all_of(samples.begin(), samples.end(), [&](const std::vector<double>& list) {
        return std::all_of(list.begin(), list.end(), is_time);
      });
      if (!complete(samples) || !complete(clocks) || !all_times)
        return "the worker answered with times of another race";
      protocol = text_of(times.json(), "protocol");
      race.tell(samples, clocks);
      return {};
    } catch (const Error& error) {
      lane.worker.reset();  // who answers something else than times may go on doing so
      return error.what();
    }
  }

  // What was elected before this sweep, if it is still right; else the default config; only without either the fastest
  // of the trials. The database says the same: store_trial() saw to it.
  void elect_what_stands() {
    for (const std::optional<KernelConfig>& elected : {standing_, std::optional(default_)}) {
      for (const Measurement& row : result_.rows) {
        if (!elected || !(row.config == *elected) || row.status != MeasurementStatus::ok || time_of(row) <= 0) continue;
        result_.best = row;
        return;
      }
    }
  }

  const AttentionProblem& problem_;
  SweepOptions options_;
  TuningDatabase& database_;
  const std::function<void(const SweepProgress&)>& on_progress_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::vector<Lane> lanes_;
  WorkerFacts facts_;
  Rigor rigor_ = Rigor::estimate;
  SweepEffort effort_;
  KernelConfig default_;
  std::optional<KernelConfig> standing_;             // elected by a race before this sweep, and in its space
  bool standing_is_reused_ = false;                  // its row needs no trial, and so its race stands
  std::map<std::string, Measurement> earlier_rows_;  // by config
  std::size_t compile_workers_ = 0;

  std::mutex mutex_;  // guards what the lanes share: the rest
  std::unique_ptr<Searcher> searcher_;
  std::size_t claimed_ = 0;
  std::exception_ptr trouble_;
  SweepResult result_;
  bool default_is_stored_ = false;
  std::vector<Measurement> waiting_;               // trials that ended before the default's
  std::vector<std::vector<Measurement>> unsaved_;  // in the order of their results; those of a race together
  std::size_t tried_ = 0;                          // rows to store, so far
  std::string not_saved_because_;
  std::chrono::steady_clock::time_point next_saving_ = begin_;

  std::unique_ptr<CompileAhead> ahead_;  // the last, and so the first to end: its threads look at what is above
};

}  // namespace

AttentionProblem reduced_problem(const AttentionProblem& problem, const KernelConfig& config) {
  constexpr double kLimit = kEmulatorFlopsPerSecond * kEmulatorSeconds;
  if (count_flops(problem) <= kLimit) return problem;
  // A few whole tiles and the same tail.
  const auto cut = [](std::int64_t length, std::int64_t block, std::int64_t tiles) {
    return std::min(length, tiles * block + length % block);
  };
  AttentionProblem reduced = with_lengths(problem, cut(problem.seq_q, config.block_q, kReducedQueryTiles),
                                          cut(problem.seq_kv, config.block_kv, kReducedKeyTiles));
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

SweepEffort effort_of(Rigor rigor, std::size_t space_size) {
  const int size = static_cast<int>(space_size);
  switch (rigor) {
    case Rigor::estimate:
      return {.model_top = 10, .patience = 10, .sample_seconds = 0, .race_seconds = 0, .budget_seconds = 60};
    case Rigor::measure:
      return {.patience = std::clamp(size / 25, 15, 40)};
    case Rigor::patient:
      return {.model_top = 30,
              .patience = std::clamp(size / 5, 75, 200),
              .sample_seconds = 0.1,
              .race_seconds = 2,
              .budget_seconds = 600};
    case Rigor::exhaustive:
      return {.model_top = 30, .patience = 0, .sample_seconds = 0.03, .race_seconds = 2, .budget_seconds = 0};
  }
  return {};
}

SweepResult sweep(const AttentionProblem& problem, const SweepOptions& options, TuningDatabase& database,
                  const std::function<void(const SweepProgress&)>& on_progress) {
  return Sweep(problem, options, database, on_progress).run();
}

}  // namespace attune
