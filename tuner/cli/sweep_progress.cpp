#include "tuner/cli/sweep_progress.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <utility>

#include "generator/error.h"
#include "runtime/system/printable.h"
#include "tuner/cli/output.h"
#include "tuner/cli/report.h"
#include "tuner/search/race.h"

namespace attune::cli {
namespace {

/// A longer line would wrap, and then not be rewritten as a whole.
std::size_t terminal_columns() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
}

Json trial_event(const SweepProgress& progress) {
  Json event = {{"event", "trial"},
                {"done", progress.done},
                {"total", progress.total},
                {"seconds", progress.seconds},
                {"compile_queue", progress.compile_queue},
                {"reused", progress.reused},
                {"config", canonical_text(progress.last.config)},
                {"status", to_string(progress.last.status)}};
  if (progress.seconds_left) event["seconds_left"] = *progress.seconds_left;
  if (progress.last.median_us > 0) event["median_us"] = progress.last.median_us;
  if (progress.last.predicted_us > 0) event["predicted_us"] = progress.last.predicted_us;
  if (!progress.last.reason.empty()) event["reason"] = progress.last.reason;
  if (progress.best) {
    event["best"] = {{"config", canonical_text(progress.best->config)}, {"ranking_us", progress.best->ranking_us()}};
    if (progress.default_measurement && progress.default_measurement->ranking_us() > 0)
      event["default_over_best"] = progress.default_measurement->ranking_us() / progress.best->ranking_us();
  }
  return event;
}

}  // namespace

ProgressStyle parse_progress_style(const std::string& text) {
  if (text == "auto") return ::isatty(STDERR_FILENO) == 1 ? ProgressStyle::line : ProgressStyle::plain;
  if (text == "line") return ProgressStyle::line;
  if (text == "plain") return ProgressStyle::plain;
  if (text == "json") return ProgressStyle::json;
  if (text == "none") return ProgressStyle::none;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("--progress {}: expected auto, line, plain, json or none", text));
}

std::string compare_with_default(const Measurement& best, const Measurement& default_measurement) {
  const double mine = best.ranking_us(), other = default_measurement.ranking_us();
  if (default_measurement.status != MeasurementStatus::ok || mine <= 0 || other <= 0) return "";
  if (best.config == default_measurement.config) return ", the default";
  return fmt::format(", {:.2f}x the default{}{}", ratio_of_medians(default_measurement, best),
                     best.median_us > 0 ? "'s speed" : " by the cost model",
                     have_both_spreads(best, default_measurement) ? " over both spreads" : "");
}

std::string describe_seconds(double seconds) {
  const auto whole = static_cast<long>(std::lround(seconds));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

std::string progress_line(const std::string& place, const SweepProgress& progress,
                          const std::optional<double>& list_seconds_left, std::size_t columns) {
  std::string line =
      fmt::format("{}{}/{}  {}", place, progress.done, progress.total, describe_seconds(progress.seconds));
  if (progress.seconds_left) line += fmt::format(", {} left", describe_seconds(*progress.seconds_left));
  if (list_seconds_left) line += fmt::format(", list {}", describe_seconds(*list_seconds_left));
  if (progress.best) {
    std::string gain;
    if (progress.default_measurement) gain = compare_with_default(*progress.best, *progress.default_measurement);
    // The figure first: a long config is what is cut.
    if (gain.starts_with(", ")) gain = " " + gain.substr(2, gain.find(" the default") - 2);
    line += fmt::format("; best{}: {}", gain, canonical_text(progress.best->config));
  } else {
    line += "; none right yet";
  }
  return line.substr(0, columns);
}

std::optional<double> ProgressPrinter::list_seconds_left() const {
  if (problems_.size() < 2 || ended_ == 0) return std::nullopt;
  const std::chrono::duration<double> since = std::chrono::steady_clock::now() - begun_;
  return since.count() / static_cast<double>(ended_) * static_cast<double>(problems_.size() - ended_);
}

std::string ProgressPrinter::place(std::size_t index) const {
  return problems_.size() > 1 ? fmt::format("[{}/{}] ", index + 1, problems_.size()) : "";
}

std::string ProgressPrinter::text(std::size_t index) const {
  const NamedProblem& named = problems_[index];
  return named.name.empty() ? canonical_text(named.problem)
                            : fmt::format("{}: {}", named.name, canonical_text(named.problem));
}

void ProgressPrinter::print_event(std::size_t index, Json event) {
  event["problem"] = canonical_text(problems_[index].problem);
  if (!problems_[index].name.empty()) event["name"] = problems_[index].name;
  print(json_text(event));
}

void ProgressPrinter::print(const std::string& line) {
  if (style_ == ProgressStyle::line) {
    print_status(printable(line).substr(0, terminal_columns() - 1));
    open_line_ = true;
  } else {
    print_message(line);
  }
}

void ProgressPrinter::begin(std::size_t index) {
  const std::lock_guard lock(mutex_);
  if (style_ == ProgressStyle::json) {
    print_event(index, {{"event", "begin"}, {"index", index}, {"problems", problems_.size()}});
  } else if (style_ != ProgressStyle::none) {
    print(place(index) + text(index));
  }
}

void ProgressPrinter::show(std::size_t index, const SweepProgress& progress) {
  const std::lock_guard lock(mutex_);
  if (style_ == ProgressStyle::none) return;
  if (style_ == ProgressStyle::json) {
    Json event = trial_event(progress);
    if (const std::optional<double> left = list_seconds_left()) event["list_seconds_left"] = *left;
    return print_event(index, std::move(event));
  }
  std::string best = "none yet";
  if (progress.best) {
    best = canonical_text(progress.best->config);
    if (progress.default_measurement) best += compare_with_default(*progress.best, *progress.default_measurement);
  }
  std::string state =
      fmt::format("{}{}/{}  {}", place(index), progress.done, progress.total, describe_seconds(progress.seconds));
  if (progress.seconds_left) state += fmt::format(", about {} left", describe_seconds(*progress.seconds_left));
  const std::optional<double> list_left = list_seconds_left();
  if (list_left) state += fmt::format(", the list about {}", describe_seconds(*list_left));
  if (style_ == ProgressStyle::line) {
    print(progress_line(place(index), progress, list_left, terminal_columns() - 1));
  } else {
    print(fmt::format("{}  {}{}; best: {}", state, describe(progress.last), progress.reused ? " (stored earlier)" : "",
                      best));
  }
}

void ProgressPrinter::end(std::size_t index, const SweepResult& result) {
  const std::lock_guard lock(mutex_);
  ++ended_;
  if (style_ == ProgressStyle::json) {
    Json event = {
        {"event", "end"}, {"ended_by", result.ended_by}, {"seconds", result.seconds}, {"problems_done", ended_}};
    if (result.best) event["best"] = canonical_text(result.best->config);
    print_event(index, std::move(event));
  } else if (style_ == ProgressStyle::plain && !result.finalists.empty()) {
    print(fmt::format("{}race of {}: {}", place(index), result.finalists.size(), describe(result.finalists.front())));
  }
}

void ProgressPrinter::fail(std::size_t index, const std::string& error) {
  const std::lock_guard lock(mutex_);
  ++ended_;
  if (style_ == ProgressStyle::json) {
    print_event(index, {{"event", "error"}, {"message", error}});
  } else {
    if (open_line_) end_status();
    open_line_ = false;
    warn(fmt::format("{}{}: {}", place(index), text(index), error));
  }
}

void ProgressPrinter::finish() {
  const std::lock_guard lock(mutex_);
  if (open_line_) end_status();
  open_line_ = false;
}

}  // namespace attune::cli
