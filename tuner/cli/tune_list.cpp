#include "tuner/cli/tune_list.h"

#include <fmt/core.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "generator/error.h"
#include "tuner/database/system_database.h"

namespace attune::cli {
namespace {

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

}  // namespace

std::optional<double> TimeLimit::seconds_left() const {
  if (!seconds_) return {};
  const std::chrono::duration<double> past = std::chrono::steady_clock::now() - begin_;
  return std::max(0.0, *seconds_ - past.count());
}

TuneList::TuneList(const std::vector<NamedProblem>& problems, const std::vector<ChosenDevice>& devices,
                   SweepOptions options, TuningDatabase& database, ProgressStyle style, TimeLimit limit)
    : options_(std::move(options)), limit_(limit), database_(database), progress_(style, problems) {
  for (const NamedProblem& named : problems) tuned_.push_back({named.problem, named.name, std::nullopt, ""});
  options_.spec = devices.front().spec;
  options_.stop = &interruption_.asked();
  options_.presets = open_system_databases();
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

std::vector<Tuned> TuneList::tune() {
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < places_.size(); ++i) threads.emplace_back([this, i] { work(places_[i]); });
  work(places_.front());
  for (std::thread& thread : threads) thread.join();
  progress_.finish();
  if (trouble_) std::rethrow_exception(trouble_);
  return std::move(tuned_);
}

void TuneList::work(const std::string& device) {
  SweepOptions options = options_;
  options.device = device;
  for (auto index = take(); index && !interrupted(); index = take()) {
    Tuned& tuned = tuned_[*index];
    try {
      options.budget_seconds = budget_seconds();
      progress_.begin(*index);
      tuned.result =
          sweep(tuned.problem, options, database_, [&](const SweepProgress& state) { progress_.show(*index, state); });
      progress_.end(*index, *tuned.result);
    } catch (const Error& error) {
      if (interrupted()) return;
      if (tuned_.size() == 1 || concerns_all_problems(error)) return give_up();
      tuned.error = error.what();
      progress_.fail(*index, tuned.error);
    } catch (...) {
      return give_up();
    }
  }
}

std::optional<std::size_t> TuneList::take() {
  const std::lock_guard lock(mutex_);
  if (trouble_ || next_ == tuned_.size() || limit_.is_over()) return std::nullopt;
  return next_++;
}

// Of a sweep that begins now: its own, or what is left.
std::optional<double> TuneList::budget_seconds() const {
  const std::optional<double> left = limit_.seconds_left();
  if (!left) return options_.budget_seconds;
  constexpr double kLeast = 0.1;  // 0 would be no limit
  const double own = options_.budget_seconds.value_or(effort_of(options_.rigor, 0).budget_seconds);
  return std::max(kLeast, own > 0 ? std::min(own, *left) : *left);
}

void TuneList::give_up() {
  const std::lock_guard lock(mutex_);
  if (!trouble_) trouble_ = std::current_exception();
}

}  // namespace attune::cli
