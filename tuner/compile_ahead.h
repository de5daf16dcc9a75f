#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tuner/measurement.h"

namespace attune {

/// What became of a compilation.
struct CompileOutcome {
  MeasurementStatus status = MeasurementStatus::ok;
  std::string reason;
};

/// Worker processes that compile the candidates of a sweep before their turn, into the cache on disk. A candidate is
/// compiled by one process only: by one of these, or by the caller that came first.
class CompileAhead {
 public:
  /// Compiles candidate `index`.
  using Compile = std::function<CompileOutcome(std::size_t index, const std::atomic<bool>& cancel)>;

  /// `make_compile` is called once in each of `workers` threads. Throwing there, or in the Compile, ends that thread:
  /// its candidates are left to the caller. `wanted`: which candidates are to be compiled at all.
  CompileAhead(std::vector<bool> wanted, int workers, std::function<Compile()> make_compile);
  /// Gives the compilations under way a few seconds.
  ~CompileAhead();
  CompileAhead(const CompileAhead&) = delete;
  CompileAhead& operator=(const CompileAhead&) = delete;

  /// The candidate's outcome, waiting for it if it is under way; nothing if nobody has begun: then it is the caller's.
  std::optional<CompileOutcome> take(std::size_t index);

 private:
  enum class State { idle, under_way, done, callers };
  void work(const std::function<Compile()>& make_compile);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<State> states_;
  std::vector<CompileOutcome> outcomes_;
  std::size_t reached_ = 0;  // the caller's place: no thread goes further ahead of it than horizon_
  std::size_t horizon_;
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace attune
