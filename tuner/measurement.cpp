#include "tuner/measurement.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

namespace attune {
namespace {

constexpr std::array<std::string_view, 11> kStatusTexts = {
    "ok",      "infeasible",   "compile_failed", "compile_timed_out", "spilled", "serialized", "launch_failed",
    "crashed", "wrong_result", "timed_out",      "out_of_memory"};
constexpr std::array<std::string_view, 4> kRigorTexts = {"estimate", "measure", "patient", "exhaustive"};

template <typename Enum, std::size_t N>
std::optional<Enum> parse(const std::array<std::string_view, N>& texts, std::string_view text) {
  const auto found = std::find(texts.begin(), texts.end(), text);
  if (found == texts.end()) return std::nullopt;
  return static_cast<Enum>(found - texts.begin());
}

}  // namespace

std::string_view to_string(MeasurementStatus status) { return kStatusTexts.at(static_cast<std::size_t>(status)); }
std::optional<MeasurementStatus> parse_measurement_status(std::string_view text) {
  return parse<MeasurementStatus>(kStatusTexts, text);
}
std::string_view to_string(Rigor rigor) { return kRigorTexts.at(static_cast<std::size_t>(rigor)); }
std::optional<Rigor> parse_rigor(std::string_view text) { return parse<Rigor>(kRigorTexts, text); }

double quantile(std::vector<double> values, double probability) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double position = probability * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (position - static_cast<double>(below)) * (values[above] - values[below]);
}

double Measurement::tflops() const { return median_us > 0 ? count_flops(problem) / median_us * 1e-6 : 0; }

void Measurement::summarize() {
  median_us = quantile(samples_us, 0.5);
  p20_us = quantile(samples_us, 0.2);
  p80_us = quantile(samples_us, 0.8);
  std::vector<double> known;
  for (const int clock : clocks_mhz) {
    if (clock > 0) known.push_back(clock);
  }
  sm_clock_mhz = static_cast<int>(std::lround(quantile(known, 0.5)));
}

double Measurement::ranking_us() const { return rigor == Rigor::estimate ? predicted_us : median_us; }

bool ranks_before(const Measurement& a, const Measurement& b) {
  const bool a_timed = a.ranking_us() > 0, b_timed = b.ranking_us() > 0;
  if (a_timed != b_timed) return a_timed;
  if (a.rigor != b.rigor) return a.rigor > b.rigor;
  if (a.race != b.race) return a.race > b.race;  // the empty text of a probe is the smallest
  if (a.place != b.place) return a.place < b.place;
  if (a.ranking_us() != b.ranking_us()) return a.ranking_us() < b.ranking_us();
  return canonical_text(a.config) < canonical_text(b.config);
}

std::string utc_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto microseconds = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  const std::time_t seconds = microseconds / 1'000'000;
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06}Z", fmt::gmtime(seconds), microseconds % 1'000'000);
}

std::string_view attune_version() { return ATTUNE_VERSION; }

}  // namespace attune
