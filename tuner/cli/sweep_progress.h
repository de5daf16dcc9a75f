#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "generator/attention_problem.h"
#include "tuner/sweep.h"

namespace attune::cli {

/// How a sweep is watched; always on stderr.
enum class ProgressStyle {
  line,   ///< one line that is rewritten, for a terminal
  plain,  ///< a line for each trial
  json,   ///< an event for each trial, a JSON object a line: for programs
  none,
};

/// "auto" (a line on a terminal, else plain lines), "line", "plain", "json", "none". Throws Error(invalid_argument).
ProgressStyle parse_progress_style(const std::string& text);

/// Shows the sweeps of a list of problems. Thread-safe: several sweeps may report at once.
class ProgressPrinter {
 public:
  ProgressPrinter(ProgressStyle style, std::size_t problems) : style_(style), problems_(problems) {}

  void begin(std::size_t index, const AttentionProblem& problem);
  void show(std::size_t index, const AttentionProblem& problem, const SweepProgress& progress);
  void end(std::size_t index, const AttentionProblem& problem, const SweepResult& result);
  void fail(std::size_t index, const AttentionProblem& problem, const std::string& error);
  /// Leaves the line that is rewritten.
  void finish();

 private:
  std::string place(std::size_t index) const;
  void print(const std::string& line);

  const ProgressStyle style_;
  const std::size_t problems_;
  std::mutex mutex_;  // guards the rest
  std::size_t ended_ = 0;
  bool open_line_ = false;
};

/// ", 1.13x the default's speed", or "" where that cannot be said.
std::string compare_with_default(const Measurement& best, const Measurement& default_measurement);

/// "40 s", "3 min 20 s", "2 h 5 min".
std::string describe_seconds(double seconds);

}  // namespace attune::cli
