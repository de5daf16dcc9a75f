#include "tuner/race.h"

#include <algorithm>
#include <string>

namespace attune {
namespace {

constexpr double kMedian = 0.5;

std::vector<double> ratios(const std::vector<double>& times, const std::vector<double>& over) {
  std::vector<double> result;
  for (std::size_t round = 0; round < times.size(); ++round) result.push_back(times[round] / over[round]);
  return result;
}

}  // namespace

std::vector<std::size_t> finalists(const std::vector<Measurement>& rows, const KernelConfig& default_config,
                                   const RaceRules& rules) {
  std::vector<double> times;
  std::vector<std::size_t> timed;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    times.push_back(rows[i].median_us);
    const auto same = [&](std::size_t other) { return rows[other].config == rows[i].config; };
    timed.erase(std::remove_if(timed.begin(), timed.end(), same), timed.end());
    if (rows[i].status == MeasurementStatus::ok && times[i] > 0) timed.push_back(i);
  }
  std::stable_sort(timed.begin(), timed.end(), [&](std::size_t a, std::size_t b) { return times[a] < times[b]; });
  std::vector<std::size_t> chosen;
  for (const std::size_t i : timed) {
    const bool within = times[i] <= rules.reach * times[timed.front()];
    const bool has_place = static_cast<int>(chosen.size()) < rules.max_finalists;
    if ((within && has_place) || rows[i].config == default_config) chosen.push_back(i);
  }
  return chosen;
}

std::vector<std::size_t> places(const std::vector<KernelConfig>& configs,
                                const std::vector<std::vector<double>>& samples_us, const KernelConfig& default_config,
                                const RaceRules& rules) {
  std::vector<double> medians;
  std::vector<std::string> texts;
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < configs.size(); ++i) {
    medians.push_back(quantile(samples_us[i], kMedian));
    texts.push_back(canonical_text(configs[i]));
    order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return medians[a] != medians[b] ? medians[a] < medians[b] : texts[a] < texts[b];
  });
  if (order.empty()) return order;
  const std::size_t fastest = order.front();
  const auto ties = [&](std::size_t i) {
    if (i == fastest) return true;
    const auto interval = median_interval(ratios(samples_us[i], samples_us[fastest]), rules.confidence);
    return !interval || interval->low < rules.margin;
  };
  const auto is_default = [&](std::size_t i) { return configs[i] == default_config; };
  const auto goes_first = [&](std::size_t a, std::size_t b) {
    return is_default(a) != is_default(b) ? is_default(a) : texts[a] < texts[b];
  };
  auto winner = order.begin();
  for (auto each = order.begin(); each != order.end(); ++each) {
    const bool tie = ties(*each);
    if (tie && goes_first(*each, *winner)) winner = each;
    if (!tie && is_default(*each)) break;  // whatever follows is slower than the default
  }
  std::rotate(order.begin(), winner, winner + 1);
  return order;
}

Comparison compare_rows(const Measurement& a, const Measurement& b, const ComparisonOptions& options) {
  const bool in_turns = !a.race.empty() && a.race == b.race;
  return in_turns ? compare_rounds(a.samples_us, b.samples_us, options)
                  : compare_times(a.samples_us, b.samples_us, options);
}

}  // namespace attune
