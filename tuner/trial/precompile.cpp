#include "tuner/trial/precompile.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <unordered_set>

#include "generator/config/config_space.h"
#include "generator/error.h"
#include "generator/generate.h"
#include "generator/problem/dispatch_class.h"
#include "runtime/system/json_text.h"
#include "tuner/database/measurement_json.h"
#include "tuner/search/searcher.h"
#include "tuner/trial/worker_answer.h"
#include "tuner/trial/worker_process.h"

namespace attune {
namespace {

using nlohmann::json;

PrecompileOutcome outcome_of(const WorkerAnswer& answer) {
  if (answer.kind == WorkerAnswer::Kind::timed_out)
    return {MeasurementStatus::compile_timed_out, "while compiling: " + answer.text};
  if (answer.kind == WorkerAnswer::Kind::crashed)
    return {MeasurementStatus::crashed, "while compiling: " + answer.text};
  const json said = parse_worker_answer(answer.text);
  throw_if_environment_failed(said);
  if (const auto status = parse_measurement_status(text_of(said, "status"))) {
    const auto is_true = [&](const char* field) {
      const auto found = said.find(field);
      return found != said.end() && *found == true;
    };
    return {*status, text_of(said, "reason"), is_true("from_cache"), is_true("stored")};
  }
  return {MeasurementStatus::crashed, "while compiling the worker answered " + answer.text};
}

/// The jobs of one call, taken one after the other by threads that own a worker each.
class Pool {
 public:
  Pool(const std::vector<PrecompileJob>& jobs, const PrecompileOptions& options,
       const std::function<void(std::size_t, const PrecompileOutcome&)>& on_done)
      : jobs_(jobs), options_(options), on_done_(on_done), outcomes_(jobs.size()) {
    if (options_.command.empty()) options_.command = find_attune_command();
  }

  std::vector<PrecompileOutcome> run() {
    const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
    const std::size_t wanted = options_.workers > 0 ? static_cast<std::size_t>(options_.workers) : cores;
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < std::min(wanted, jobs_.size()); ++i) threads.emplace_back([this] { work(); });
    for (std::thread& thread : threads) thread.join();
    if (trouble_) std::rethrow_exception(trouble_);
    return std::move(outcomes_);
  }

 private:
  void work() {
    try {
      std::unique_ptr<WorkerProcess> worker;
      for (std::size_t i = next_++; i < jobs_.size() && !stop_; i = next_++) {
        if (!worker) {
          worker = std::make_unique<WorkerProcess>(options_.command);
          worker->limit_memory(WorkerProcess::kCompilerBytes);
        }
        const json request = {{"op", "compile"},
                              {"device", "cuda:0"},
                              {"spec", device_spec_to_json(options_.spec)},
                              {"problem", canonical_text(jobs_[i].problem)},
                              {"config", canonical_text(jobs_[i].config)}};
        const WorkerAnswer answer = worker->ask(json_line(request), options_.timeout_seconds, &stop_);
        if (answer.kind != WorkerAnswer::Kind::answered) worker.reset();
        if (stop_) return;
        outcomes_[i] = outcome_of(answer);
        const std::lock_guard lock(mutex_);
        if (on_done_) on_done_(i, outcomes_[i]);
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!trouble_) trouble_ = std::current_exception();
      stop_ = true;
    }
  }

  const std::vector<PrecompileJob>& jobs_;
  PrecompileOptions options_;
  const std::function<void(std::size_t, const PrecompileOutcome&)>& on_done_;
  std::vector<PrecompileOutcome> outcomes_;
  std::atomic<std::size_t> next_ = 0;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;
  std::exception_ptr trouble_;
};

}  // namespace

std::vector<PrecompileJob> precompile_jobs(const std::vector<AttentionProblem>& problems, const DeviceSpec& device,
                                           int max_candidates, std::size_t* considered) {
  const auto limit = static_cast<std::size_t>(std::max(max_candidates, 0));
  std::vector<PrecompileJob> jobs;
  std::unordered_set<std::string> sources;
  std::size_t total = 0;
  for (const AttentionProblem& problem : problems) {
    std::vector<Candidate> space;
    for (Candidate& candidate : config_space(problem, device)) {
      if (candidate.feasible()) space.push_back(std::move(candidate));
    }
    std::vector<KernelConfig> seeds = {default_config(problem, device)};
    for (const KernelConfig& seed : published_seeds(problem, space)) seeds.push_back(seed);
    const std::size_t wanted = limit > 0 ? std::min(limit, space.size()) : space.size();
    const SearchLimits limits{.model_top = static_cast<int>(wanted)};
    const Searcher searcher(std::move(space), seeds, limits);
    for (const std::size_t index : searcher.upcoming(wanted)) {
      const KernelConfig& config = searcher.space()[index].config;
      if (sources.insert(kernel_class(problem, config)).second) jobs.push_back({problem, config});
    }
    total += wanted;
  }
  if (considered) *considered = total;
  return jobs;
}

std::vector<PrecompileOutcome> precompile(
    const std::vector<PrecompileJob>& jobs, const PrecompileOptions& options,
    const std::function<void(std::size_t job, const PrecompileOutcome&)>& on_done) {
  return Pool(jobs, options, on_done).run();
}

}  // namespace attune
