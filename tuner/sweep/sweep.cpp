#include "tuner/sweep/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "generator/error.h"
#include "generator/generate.h"
#include "runtime/system/template_folder.h"
#include "tuner/database/current_build.h"
#include "tuner/search/race.h"
#include "tuner/search/searcher.h"
#include "tuner/sweep/reduced_problem.h"
#include "tuner/sweep/row_writer.h"
#include "tuner/sweep/search_start.h"
#include "tuner/sweep/standing_config.h"
#include "tuner/sweep/sweep_lane.h"
#include "tuner/sweep/sweep_race.h"
#include "tuner/trial/compile_ahead.h"
#include "tuner/trial/worker.h"
#include "tuner/trial/worker_process.h"

namespace attune {
namespace {

// Trials scatter by 2 to 6 % against the race: what begins so much slower than the best does not win it.
constexpr double kHopelessRatio = 1.2;

class Sweep {
 public:
  Sweep(const AttentionProblem& problem, const SweepOptions& options, TuningDatabase& database,
        const std::function<void(const SweepProgress&)>& on_progress)
      : problem_(simplest_mask(problem)),
        options_(options),
        database_(database),
        on_progress_(on_progress),
        writer_(database, options.stop) {
    validate(problem_);
    for (const std::string& device : device_names(options_.device)) lanes_.emplace_back(problem_, options_, device);
    if (options_.command.empty()) options_.command = find_attune_command();
  }

  SweepResult run() {
    facts_ = lanes_.front().start();
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

  // Times of different models are not to be mixed.
  void start_further_worker(SweepLane& lane) const {
    const WorkerFacts facts = lane.start();
    if (facts.device != facts_.device || facts.sm_count != facts_.sm_count) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{} is an {} with {} SMs, {} an {} with {}: one sweep needs GPUs of one model",
                              lanes_.front().device(), facts_.device, facts_.sm_count, lane.device(), facts.device,
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
    SearchStart start = search_start(problem_, space, default_, options_.spec, facts_.device, facts_.sm_count,
                                     database_, options_.presets);
    elected_ = start.elected;
    searcher_ = std::make_unique<Searcher>(std::move(space), start.seeds,
                                           SearchLimits{.model_top = effort_.model_top, .patience = effort_.patience});
  }

  // The hash of the plan that workers try; empty for a config that has none any more.
  std::string source_hash_of(const KernelConfig& config) const {
    try {
      const KernelTarget target = facts_.can_time ? KernelTarget::cuda : KernelTarget::emulator;
      return generate(problem_, config, options_.spec, runtime_templates(), target).source_hash();
    } catch (const Error&) {
      return {};
    }
  }

  bool has_current_source(const Measurement& row) const {
    const bool knows_source = !row.source_hash.starts_with(kTemplatesMark);
    return is_of_source(row, knows_source ? source_hash_of(row.config) : "", runtime_templates());
  }

  // A config that was tried with the same source, compiler, driver and at least this rigor would give the same
  // again. What lay in the machine's state that day, and not in the config, is tried again.
  void find_rows_of_earlier_runs() {
    for (Measurement& row : database_.find_all(problem_, facts_.device, facts_.sm_count)) {
      if (row.rigor < rigor_ || (row.rigor == Rigor::estimate) != (rigor_ == Rigor::estimate) ||
          row.compiler != facts_.toolchain.compiler || row.driver != facts_.toolchain.driver ||
          !has_current_source(row)) {
        continue;
      }
      const std::string config = canonical_text(row.config);
      if (row.status == MeasurementStatus::out_of_memory || lacks_time(row)) {
        earlier_rows_.erase(config);
      } else {
        earlier_rows_.insert_or_assign(config, std::move(row));
      }
    }
    StandingConfig::Known known;
    known.default_config = default_;
    known.elected = elected_;
    known.elected_is_reused = elected_ && earlier_rows_.contains(canonical_text(*elected_));
    known.default_is_first = searcher_->upcoming(1) == std::vector{index_of_default()};
    known.rigor = rigor_;
    standing_.emplace(known, writer_);
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
        return lanes_.front().compile_in(*worker, trial_problem(index), config_of(index), &cancel);
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
      if (!earlier_rows_.contains(canonical_text(config_of(index)))) wanted.push_back(index);
    }
    ahead_->want(std::move(wanted));
  }

  // What is run to see whether a candidate is correct: the problem, or for the emulator one that it can run in a
  // second.
  AttentionProblem trial_problem(std::size_t index) const {
    return facts_.can_time ? problem_ : reduced_problem(problem_, config_of(index));
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
        lanes_[i].end_worker();
      });
    }
    work(lanes_.front());
    for (std::thread& thread : threads) thread.join();
    if (trouble_) std::rethrow_exception(trouble_);
  }

  void work(SweepLane& lane) {
    try {
      if (!lane.has_worker()) start_further_worker(lane);
      while (const auto index = claim()) {
        Measurement row = try_candidate(lane, *index);
        const std::lock_guard lock(mutex_);
        standing_->store_trial(row);
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
      const auto earlier = earlier_rows_.find(canonical_text(config_of(*index)));
      if (earlier == earlier_rows_.end()) {
        if (begun && effort_.budget_seconds > 0 && seconds() >= effort_.budget_seconds) return end("budget");
        ++claimed_;
        return index;
      }
      ++claimed_;
      ++result_.reused;
      standing_->store_reused(earlier->second);
      take(earlier->second, *index, true);
    }
    return std::nullopt;
  }

  Measurement try_candidate(SweepLane& lane, std::size_t index) {
    Measurement row = outcome_of_trial(lane, index);
    const Candidate& candidate = searcher_->space()[index];
    const AttentionProblem tried = trial_problem(index);
    row.problem = problem_;
    row.config = candidate.config;
    row.device = facts_.device;
    row.sm_count = facts_.sm_count;
    row.rigor = rigor_;
    row.predicted_us = candidate.cost.microseconds;
    row.source_hash = source_hash_of(row.config);
    row.compiler = facts_.toolchain.compiler;
    row.driver = facts_.toolchain.driver;
    row.node = lane.node();
    row.attune_version = attune_version();
    row.created_at = utc_now();
    if (rigor_ == Rigor::estimate) {
      row.protocol = fmt::format("ranked by the cost model; checked on the {}", facts_.can_time ? "GPU" : "emulator");
      if (!(tried == problem_)) row.protocol += " by " + canonical_text(tried);
    }
    return row;
  }

  // What the workers say of it, whatever they say.
  Measurement outcome_of_trial(SweepLane& lane, std::size_t index) {
    Measurement row;
    if (!lane.prepare_for_trial(row)) return row;
    auto compiled = ahead_->take(index);
    if (!compiled) compiled = lane.compile(trial_problem(index), config_of(index));
    if (stop_asked() && compiled->status != MeasurementStatus::ok) throw Interrupted();
    if (compiled->status != MeasurementStatus::ok) {
      row.status = compiled->status;
      row.reason = compiled->reason;
      return row;
    }
    if (!lane.prepare_for_trial(row)) return row;
    return lane.try_config(trial_problem(index), config_of(index), hopeless_us());
  }

  const KernelConfig& config_of(std::size_t index) const { return searcher_->space()[index].config; }

  double hopeless_us() {
    const std::lock_guard lock(mutex_);
    return rigor_ != Rigor::estimate && result_.best ? kHopelessRatio * time_of(*result_.best) : 0;
  }

  void save_the_rest() {
    const auto untimed = std::count_if(result_.rows.begin(), result_.rows.end(), lacks_time);
    if (untimed > 0) {
      const auto first = std::find_if(result_.rows.begin(), result_.rows.end(), lacks_time);
      result_.notes.push_back(fmt::format("{} {} not timed and not stored ({}): the same command tries {} again",
                                          untimed, untimed == 1 ? "trial was" : "trials were", first->reason,
                                          untimed == 1 ? "it" : "them"));
    }
    RowWriter::Unsaved unsaved = writer_.finish();
    if (unsaved.rows.empty()) return;
    result_.not_stored = true;
    result_.unsaved = std::move(unsaved.rows);
    result_.notes.push_back(std::move(unsaved.note));
  }

  double time_of(const Measurement& row) const { return trial_time(row, rigor_); }

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

  // Times the finalists alternately. Without a race, or if it fails, what stands is elected.
  void race() {
    if (rigor_ == Rigor::estimate) return;
    FinalRace race(result_.rows, default_, effort_.race_seconds);
    std::vector<Measurement> rows;
    for (const std::size_t i : race.entrants()) rows.push_back(result_.rows[i]);
    result_.race_reused = raced_together(rows);
    if (result_.race_reused) {
      rows = rows_of_race(result_.rows, rows.front().race);
    } else if (rows.empty() || result_.ended_by == "interrupted") {
      return elect_what_stands();
    } else {
      SweepRace done = run_race(race, result_.rows, rigor_, lanes_.front(), [this] { return stop_asked(); });
      if (!done.failure.empty()) {
        result_.notes.push_back(
            fmt::format("the final race did not take place ({}): of the trials alone none is elected, for their times "
                        "scatter by a few percent",
                        done.failure));
        return elect_what_stands();
      }
      writer_.store(done.rows);
      rows = std::move(done.rows);
    }
    result_.best = rows.front();
    for (const Measurement& row : rows) {
      if (row.config == default_) result_.default_measurement = row;
    }
    result_.finalists = std::move(rows);
  }

  // Only where nothing stands is it the fastest of the trials.
  void elect_what_stands() {
    if (const Measurement* row = standing_->row_that_stands(result_.rows)) result_.best = *row;
  }

  const AttentionProblem problem_;
  SweepOptions options_;
  TuningDatabase& database_;
  const std::function<void(const SweepProgress&)>& on_progress_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::vector<SweepLane> lanes_;
  WorkerFacts facts_;
  Rigor rigor_ = Rigor::estimate;
  SweepEffort effort_;
  KernelConfig default_;
  std::optional<KernelConfig> elected_;              // by a race before this sweep, and in its space
  std::map<std::string, Measurement> earlier_rows_;  // by config
  std::size_t compile_workers_ = 0;

  std::mutex mutex_;  // guards what the lanes share: the rest
  std::unique_ptr<Searcher> searcher_;
  std::size_t claimed_ = 0;
  std::exception_ptr trouble_;
  SweepResult result_;
  RowWriter writer_;
  std::optional<StandingConfig> standing_;

  std::unique_ptr<CompileAhead> ahead_;  // the last, and so the first to end: its threads look at what is above
};

}  // namespace

SweepResult sweep(const AttentionProblem& problem, const SweepOptions& options, TuningDatabase& database,
                  const std::function<void(const SweepProgress&)>& on_progress) {
  return Sweep(problem, options, database, on_progress).run();
}

}  // namespace attune
