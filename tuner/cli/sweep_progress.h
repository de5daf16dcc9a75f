#pragma once

#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tuner/cli/output.h"
#include "tuner/sweep/shapes_file.h"
#include "tuner/sweep/sweep.h"

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

/// What ProgressStyle::line shows of a sweep, at most `columns` wide: trials done, time spent and left (of the whole
/// list, too, if that is given), the best config and its gain.
std::string progress_line(const std::string& place, const SweepProgress& progress,
                          const std::optional<double>& list_seconds_left, std::size_t columns);

/// Shows the sweeps of a list of problems. Thread-safe: several sweeps may report at once.
class ProgressPrinter {
 public:
  ProgressPrinter(ProgressStyle style, std::vector<NamedProblem> problems)
      : style_(style), problems_(std::move(problems)) {}

  /// `index`: of the list.
  void begin(std::size_t index);
  void show(std::size_t index, const SweepProgress& progress);
  void end(std::size_t index, const SweepResult& result);
  void fail(std::size_t index, const std::string& error);
  /// Leaves the line that is rewritten.
  void finish();

 private:
  std::string place(std::size_t index) const;
  std::string text(std::size_t index) const;
  /// By the time that the problems which have ended took; none for a single problem, or before the first has ended.
  std::optional<double> list_seconds_left() const;
  void print(const std::string& line);
  void print_event(std::size_t index, Json event);

  const ProgressStyle style_;
  const std::vector<NamedProblem> problems_;
  const std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  std::mutex mutex_;  // guards the rest
  std::size_t ended_ = 0;
  bool open_line_ = false;
};

/// ", 1.13x the default's speed", with " over both spreads" where the race timed wide scores too, or "" where that
/// cannot be said.
std::string compare_with_default(const Measurement& best, const Measurement& default_measurement);

/// "40 s", "3 min 20 s", "2 h 5 min".
std::string describe_seconds(double seconds);

}  // namespace attune::cli
