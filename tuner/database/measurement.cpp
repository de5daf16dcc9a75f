#include "tuner/database/measurement.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <numbers>

#include "generator/device/device_spec.h"
#include "generator/error.h"
#include "generator/families/kernel_family.h"
#include "generator/lazy_value.h"
#include "generator/problem/mask_geometry.h"
#include "runtime/oracle/output_bounds.h"
#include "tuner/database/database_rows.h"

namespace attune {
namespace {

constexpr std::array<std::string_view, 11> kStatusTexts = {
    "ok",      "infeasible",   "compile_failed", "compile_timed_out", "spilled", "serialized", "launch_failed",
    "crashed", "wrong_result", "timed_out",      "out_of_memory"};
constexpr std::array<std::string_view, 4> kRigorTexts = {"estimate", "measure", "patient", "exhaustive"};

// GPUs run above their nominal clock, GeForce boards by up to a tenth, and some owners go further.
constexpr double kClockHeadroom = 1.25;

// What an SM and the memory of a device can do at best, at the nominal clock.
struct Rates {
  double flops_per_us_of_sm = 0, bytes_per_us = 0, l2_bytes = 0;
};

Rates peak_rates(const DeviceSpec& device) {
  return {device.peak_flops_per_clock * device.clock_mhz, device.memory_gbps * 1e3,
          static_cast<double>(device.l2_bytes)};
}

// The greatest of each, times what the next generations may bring.
Rates fastest_known() {
  static constinit LazyValue<const Rates> rates_to_come;
  return rates_to_come.get([] {
    constexpr double kToCome = 4;
    Rates fastest;
    for (const DeviceSpec& device : known_devices()) {
      const Rates rates = peak_rates(device);
      fastest.flops_per_us_of_sm = std::max(fastest.flops_per_us_of_sm, kToCome * rates.flops_per_us_of_sm);
      fastest.bytes_per_us = std::max(fastest.bytes_per_us, kToCome * rates.bytes_per_us);
      fastest.l2_bytes = std::max(fastest.l2_bytes, kToCome * rates.l2_bytes);
    }
    return fastest;
  });
}

// The greatest |LSE| of the random normal inputs of trials: keys as they sum, and a score beyond all that occur.
double greatest_lse(const AttentionProblem& problem) {
  constexpr double kDeviations = 20;
  const double deviation = problem.softmax_scale * std::sqrt(static_cast<double>(problem.head_dim_qk()));
  return std::log(static_cast<double>(problem.seq_kv)) + kDeviations * deviation;
}

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

bool races_wide(const AttentionProblem& problem) {
  // Kernels multiply the scale by log2(e), in fp32.
  return problem.pass == Pass::forward &&
         std::isfinite(kWideSpread * problem.softmax_scale * std::numbers::log2e_v<float>);
}

double both_spreads(double us, double wide_us) { return std::sqrt(us * wide_us); }

std::vector<double> both_spreads(const std::vector<double>& samples_us, const std::vector<double>& wide_samples_us) {
  std::vector<double> times = samples_us;
  for (std::size_t round = 0; round < std::min(times.size(), wide_samples_us.size()); ++round)
    times[round] = both_spreads(times[round], wide_samples_us[round]);
  return times;
}

double Measurement::tflops() const { return median_us > 0 ? count_flops(problem) / median_us * 1e-6 : 0; }

void Measurement::summarize() {
  median_us = quantile(samples_us, 0.5);
  p20_us = quantile(samples_us, 0.2);
  p80_us = quantile(samples_us, 0.8);
  wide_median_us = quantile(wide_samples_us, 0.5);
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
  if (a.race.empty() != b.race.empty()) return b.race.empty();
  if (!a.race.empty() && a.sequence != b.sequence) return a.sequence > b.sequence;
  const std::string a_raced = time_order(a.race), b_raced = time_order(b.race);
  if (a_raced != b_raced) return a_raced > b_raced;
  if (a.place != b.place) return a.place < b.place;
  if (a.ranking_us() != b.ranking_us()) return a.ranking_us() < b.ranking_us();
  return canonical_text(a.config) < canonical_text(b.config);
}

bool is_of_last_templates(const Measurement& row) {
  if (!row.source_hash.starts_with(kTemplatesMark)) return false;
  const KernelFamily* const family = find_family(row.problem.pass, row.config.family);
  return family != nullptr && !family->last_templates_of_0_1.empty() &&
         std::string_view(row.source_hash).substr(kTemplatesMark.size()) == family->last_templates_of_0_1;
}

bool is_newer(const Measurement& a, const Measurement& b) {
  if (a.sequence != b.sequence) return a.sequence > b.sequence;
  const std::string a_made = time_order(a.created_at), b_made = time_order(b.created_at);
  if (a_made != b_made) return a_made > b_made;
  return content_hash(a) > content_hash(b);
}

double least_us(const AttentionProblem& problem, const std::string& device, int sm_count) {
  if (problem.has_pairs_of_call()) return 0;
  Rates rates = fastest_known();
  if (const std::optional<DeviceSpec> known = find_device_by_name(device)) rates = peak_rates(*known);
  const double matrix_us = count_flops(problem) / (rates.flops_per_us_of_sm * sm_count);
  // Keys that a mask hides need not be read. What lies in L2 when the kernel begins, or stays there when it ends, is
  // not moved while it runs.
  const double bytes = hides_pairs(problem.mask) ? 0 : count_bytes(problem);
  const double moved = std::max(0.0, bytes - 2 * rates.l2_bytes);
  return std::max(matrix_us, moved / rates.bytes_per_us) / kClockHeadroom;
}

bool is_count_of_sms(int count) {
  constexpr int kMost = 10'000;  // fifty times those of today's greatest GPUs
  return count >= 1 && count <= kMost;
}

std::string impossibility(const Measurement& m) {
  const auto is_quantity = [](double value) { return std::isfinite(value) && value >= 0; };
  const double quantities[] = {m.median_us, m.p20_us, m.p80_us, m.wide_median_us, m.predicted_us, m.compile_ms};
  if (!std::all_of(std::begin(quantities), std::end(quantities), is_quantity) ||
      !std::all_of(m.samples_us.begin(), m.samples_us.end(), is_quantity) ||
      !std::all_of(m.wide_samples_us.begin(), m.wide_samples_us.end(), is_quantity))
    return "one of its times is negative or no number";
  const bool is_wide = m.wide_median_us > 0 || !m.wide_samples_us.empty();
  if (is_wide && m.wide_samples_us.size() != m.samples_us.size())
    return fmt::format("it has {} samples with wide scores and {} others", m.wide_samples_us.size(),
                       m.samples_us.size());
  if (!m.wide_samples_us.empty() && m.wide_median_us <= 0)
    return "it has samples with wide scores and no median of them";
  try {
    validate(m.problem);
  } catch (const Error& error) {
    return fmt::format("its problem is none: {}", error.what());
  }
  if (!is_count_of_sms(m.sm_count)) return fmt::format("it names a device of {} SMs", m.sm_count);
  if (m.sequence < 0 || m.sequence > kGreatestSequence)
    return fmt::format("its sequence {} is not one that a database counts to", m.sequence);
  for (const std::string& time : {m.created_at, m.race}) {
    if (!time.empty() && !canonical_time(time)) return fmt::format("its time \"{}\" is none", time);
  }
  if (m.place < 0 || m.race.empty() != (m.place == 0))
    return fmt::format("it has place {} in the race \"{}\"", m.place, m.race);
  if (m.status != MeasurementStatus::ok) return {};
  if (m.rigor == Rigor::estimate)
    return m.predicted_us > 0 ? "" : "it was ranked by the cost model and has no prediction";
  if (m.median_us <= 0) return "it is ok and has no time";
  const bool has_quantiles = m.p20_us > 0 || m.p80_us > 0;
  if (has_quantiles && (m.p20_us > m.median_us || m.median_us > m.p80_us))
    return "its median lies beyond its own quantiles";
  // The work is the same for wide scores.
  const double shortest = m.wide_median_us > 0 ? std::min(m.median_us, m.wide_median_us) : m.median_us;
  if (const double least = least_us(m.problem, m.device, m.sm_count); shortest < least) {
    return fmt::format("it takes {:.4g} us, where the units of the device need {:.4g} us at least", shortest, least);
  }
  return {};
}

std::string error_beyond_bounds(const Measurement& m) {
  if (m.status != MeasurementStatus::ok) return {};
  const bool forward = m.problem.pass == Pass::forward;
  double relative = forward ? forward_bounds(m.problem).relative : backward_bounds(m.problem).relative;
  // An estimate may have been proven on a reduced problem, whose few rows average less.
  if (forward && m.rigor == Rigor::estimate) relative = std::max(relative, relative_bound_of_few_rows(m.problem.dtype));
  if (std::isnan(m.error_o) || (relative > 0 && m.error_o > relative))
    return fmt::format("its error of {:.3g} is beyond the bound of {:.3g}", m.error_o, relative);
  if (const double bound = lse_bound(m.problem, greatest_lse(m.problem)); !(m.error_lse <= bound))
    return fmt::format("its error of LSE of {:.3g} is beyond the bound of {:.3g}", m.error_lse, bound);
  return {};
}

std::string_view attune_version() { return ATTUNE_VERSION; }

}  // namespace attune
