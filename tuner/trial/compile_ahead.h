#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tuner/database/measurement.h"

namespace attune {

/// What became of a compilation.
struct CompileOutcome {
  MeasurementStatus status = MeasurementStatus::ok;
  std::string reason;
};

/// Worker processes that compile the candidates of a sweep before their turn, into the cache on disk. A candidate is
/// compiled by one process only: by one of these, or by the caller that came first. Thread-safe.
class CompileAhead {
 public:
  /// Compiles candidate `index`.
  using Compile = std::function<CompileOutcome(std::size_t index, const std::atomic<bool>& cancel)>;

  /// `make_compile` is called once in each of `workers` threads. Throwing there, or in the Compile, ends that thread:
  /// its candidates are left to the callers. `candidates`: how many there are.
  CompileAhead(std::size_t candidates, int workers, const std::function<Compile()>& make_compile);
  /// Gives the compilations under way a few seconds.
  ~CompileAhead();
  CompileAhead(const CompileAhead&) = delete;
  CompileAhead& operator=(const CompileAhead&) = delete;

  /// What is worth compiling from now on, the most urgent first, in place of what was asked for before. What is under
  /// way goes on; what is done or a caller's is left out.
  void want(std::vector<std::size_t> candidates);

  /// The candidate's outcome, waiting for it if it is under way; nothing if nobody has begun: then it is the caller's.
  std::optional<CompileOutcome> take(std::size_t index);

  /// How many are wanted and not done yet.
  std::size_t pending() const;

 private:
  enum class State { idle, under_way, done, callers };
  void work(const std::function<Compile()>& make_compile);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<State> states_;
  std::vector<CompileOutcome> outcomes_;
  std::vector<std::size_t> wanted_;
  std::size_t under_way_ = 0;
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace attune
