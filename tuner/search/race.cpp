#include "tuner/search/race.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "tuner/database/database_rows.h"

namespace attune {
namespace {

constexpr double kMedian = 0.5;
// The reach of a first batch, which has at most kMostFinalists. By the trials, whose scores are not wide, the best of
// both spreads may be several percent behind: a config that saves work where scores are narrow leads there and loses
// more on wide ones.
constexpr double kFirstReach = 1.15;
constexpr double kReachInNoise = 4;  // the fastest of many trials is two deviations lucky, the best may be as unlucky
constexpr double kFarthestReach = 1.25;
constexpr double kBeyondDoubt = 0.99;  // of the interval that ends a finalist's race

std::vector<double> ratios(const std::vector<double>& times, const std::vector<double>& over) {
  std::vector<double> result;
  for (std::size_t round = 0; round < std::min(times.size(), over.size()); ++round)
    result.push_back(times[round] / over[round]);
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
  std::vector<std::string> texts;
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < configs.size(); ++i) {
    texts.push_back(canonical_text(configs[i]));
    order.push_back(i);
  }
  if (order.empty()) return order;
  const std::size_t fastest = *std::min_element(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    if (samples_us[a].size() != samples_us[b].size()) return samples_us[a].size() > samples_us[b].size();
    const double of_a = quantile(samples_us[a], kMedian), of_b = quantile(samples_us[b], kMedian);
    return of_a != of_b ? of_a < of_b : texts[a] < texts[b];
  });
  std::vector<double> behind;  // the median of the time over the fastest's
  for (const std::size_t i : order) behind.push_back(quantile(ratios(samples_us[i], samples_us[fastest]), kMedian));
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    if (a == fastest || b == fastest) return a == fastest && b != fastest;
    return behind[a] != behind[b] ? behind[a] < behind[b] : texts[a] < texts[b];
  });
  const auto reaches_below_margin = [&](std::size_t i, double confidence) {
    const auto interval = median_interval(ratios(samples_us[i], samples_us[fastest]), confidence);
    return !interval || interval->low < rules.margin;
  };
  const double of_all = 1 - (1 - rules.confidence) / static_cast<double>(std::max<std::size_t>(1, configs.size() - 1));
  auto winner = order.begin();
  for (auto each = order.begin(); each != order.end(); ++each) {
    if (*each != fastest && configs[*each] == default_config) {
      if (reaches_below_margin(*each, of_all)) winner = each;
      break;  // whatever follows is slower than the default
    }
    if (*each == fastest && configs[*each] == default_config) break;
    const bool may_be_fastest =
        *each == fastest || (behind[*each] < rules.margin && reaches_below_margin(*each, rules.confidence));
    if (may_be_fastest && texts[*each] < texts[*winner]) winner = each;
  }
  std::rotate(order.begin(), winner, winner + 1);
  return order;
}

FinalRace::FinalRace(std::vector<Measurement> trials, const KernelConfig& default_config, double seconds,
                     const RaceRules& rules)
    : trials_(std::move(trials)), default_(default_config), seconds_(seconds), rules_(rules) {
  begin(kFirstReach, most_finalists(kMostFinalists));
}

// So many that kRounds rounds of all take no longer than the seconds of the race; what leads a launch takes as long.
int FinalRace::most_finalists(int most) const {
  double fastest_us = 0;
  for (const Measurement& row : trials_) {
    const bool counts = row.status == MeasurementStatus::ok && row.median_us > 0;
    if (counts && (fastest_us == 0 || row.median_us < fastest_us)) fastest_us = row.median_us;
  }
  if (fastest_us == 0) return most;
  return static_cast<int>(
      std::clamp(seconds_ * 1e6 / (2 * kRounds * fastest_us), double{kFewestFinalists}, double(most)));
}

void FinalRace::begin(double reach, int most) {
  RaceRules rules = rules_;
  rules.reach = std::max(rules.reach, reach);
  rules.max_finalists = most;
  entrants_.clear();
  for (const std::size_t trial : finalists(trials_, default_, rules)) entrants_.push_back({{trial, {}, {}, {}}, true});
  batches_ = 0;
}

bool FinalRace::narrow() {
  if (narrowed_ || entrants_.size() <= kFewestFinalists + 1) return false;
  narrowed_ = true;
  first_ = false;
  begin(kFirstReach, kFewestFinalists);
  return true;
}

std::vector<std::size_t> FinalRace::entrants() const {
  std::vector<std::size_t> trials;
  for (const Entrant& entrant : entrants_) trials.push_back(entrant.so_far.trial);
  return trials;
}

std::optional<FinalRace::Batch> FinalRace::next() const {
  const bool out_of_time = batches_ >= 2 && spent_us_ >= 4e6 * seconds_;
  if (entrants_.empty() || batches_ >= kMostBatches || out_of_time || decided()) return std::nullopt;
  Batch batch{{}, seconds_ / 2, kRounds};
  for (const Entrant& entrant : entrants_) {
    if (entrant.racing) batch.entrants.push_back(entrant.so_far.trial);
  }
  return batch;
}

void FinalRace::tell(const std::vector<std::vector<double>>& samples_us,
                     const std::vector<std::vector<double>>& wide_samples_us,
                     const std::vector<std::vector<int>>& clocks_mhz) {
  const bool wide = !wide_samples_us.empty();
  const double spreads = wide ? 2 : 1;
  std::size_t told = 0;
  for (Entrant& entrant : entrants_) {
    if (!entrant.racing) continue;
    const auto append = [](auto& list, const auto& more) { list.insert(list.end(), more.begin(), more.end()); };
    append(entrant.so_far.samples_us, samples_us[told]);
    append(entrant.so_far.clocks_mhz, clocks_mhz[told]);
    for (const double us : samples_us[told]) spent_us_ += 2 * us / spreads;
    if (wide) {
      append(entrant.so_far.wide_samples_us, wide_samples_us[told]);
      for (const double us : wide_samples_us[told]) spent_us_ += 2 * us / spreads;
    }
    entrant.ranked_us = both_spreads(entrant.so_far.samples_us, entrant.so_far.wide_samples_us);
    ++told;
  }
  ++batches_;
  if (std::exchange(first_, false)) {
    const std::size_t before = entrants_.size();
    const double reach = std::min(std::exp(kReachInNoise * noise_of_trials()), kFarthestReach);
    const std::vector<Entrant> first = entrants_;
    begin(std::max(reach, kFirstReach), most_finalists(kMostFinalists));
    if (entrants_.size() > before) return;
    entrants_ = first;
    batches_ = 1;
  }
  drop_the_slower();
}

// The standard deviation of the logarithm of what an entrant takes in the race over what its trial took, both with the
// problem's own scores: what wide ones change is no noise.
double FinalRace::noise_of_trials() const {
  std::vector<double> logs;
  double mean = 0, squares = 0;
  for (const Entrant& entrant : entrants_) {
    logs.push_back(std::log(quantile(entrant.so_far.samples_us, kMedian) / trials_[entrant.so_far.trial].median_us));
    mean += logs.back();
  }
  if (logs.size() < 2) return 0;
  mean /= static_cast<double>(logs.size());
  for (const double each : logs) squares += (each - mean) * (each - mean);
  return std::sqrt(squares / static_cast<double>(logs.size() - 1));
}

std::size_t FinalRace::leader() const {
  std::size_t leader = 0;
  double least = 0;
  for (std::size_t i = 0; i < entrants_.size(); ++i) {
    const double median = quantile(entrants_[i].ranked_us, kMedian);
    if (entrants_[i].racing && (least == 0 || median < least)) {
      leader = i;
      least = median;
    }
  }
  return leader;
}

void FinalRace::drop_the_slower() {
  const std::vector<double>& fastest = entrants_[leader()].ranked_us;
  for (Entrant& entrant : entrants_) {
    if (!entrant.racing || trials_[entrant.so_far.trial].config == default_) continue;
    const auto interval = median_interval(ratios(entrant.ranked_us, fastest), kBeyondDoubt);
    if (interval && interval->low > rules_.margin) entrant.racing = false;
  }
}

bool FinalRace::decided() const {
  if (batches_ == 0) return false;
  const std::vector<double>& fastest = entrants_[leader()].ranked_us;
  return std::all_of(entrants_.begin(), entrants_.end(), [&](const Entrant& entrant) {
    if (!entrant.racing || &entrant.ranked_us == &fastest) return true;
    // As places() will ask.
    const double others = static_cast<double>(entrants_.size() - 1);
    const bool is_default = trials_[entrant.so_far.trial].config == default_;
    const double confidence = is_default ? 1 - (1 - rules_.confidence) / others : rules_.confidence;
    const auto interval = median_interval(ratios(entrant.ranked_us, fastest), confidence);
    return interval && (interval->low >= rules_.margin || interval->high < rules_.margin);
  });
}

std::vector<FinalRace::Finalist> FinalRace::standings() const {
  if (batches_ == 0) return {};
  std::vector<KernelConfig> configs;
  std::vector<std::vector<double>> samples;
  for (const Entrant& entrant : entrants_) {
    configs.push_back(trials_[entrant.so_far.trial].config);
    samples.push_back(entrant.ranked_us);
  }
  std::vector<Finalist> standings;
  for (const std::size_t i : places(configs, samples, default_, rules_)) standings.push_back(entrants_[i].so_far);
  return standings;
}

bool is_election(const Measurement& m) { return m.place > 0 && m.protocol.ends_with(kUntilARace); }

bool of_one_race(const Measurement& a, const Measurement& b) { return !a.race.empty() && a.race == b.race; }

bool have_both_spreads(const Measurement& a, const Measurement& b) {
  return a.wide_median_us > 0 && b.wide_median_us > 0;
}

double ratio_of_medians(const Measurement& a, const Measurement& b) {
  if (have_both_spreads(a, b))
    return both_spreads(a.median_us, a.wide_median_us) / both_spreads(b.median_us, b.wide_median_us);
  return a.ranking_us() / b.ranking_us();
}

Comparison compare_rows(const Measurement& a, const Measurement& b, const ComparisonOptions& options) {
  if (content_hash(a) == content_hash(b))
    return {Verdict::same, 1, Interval{1, 1}, "both are one and the same stored result"};
  const bool both = have_both_spreads(a, b);
  const std::vector<double> of_a = both ? both_spreads(a.samples_us, a.wide_samples_us) : a.samples_us,
                            of_b = both ? both_spreads(b.samples_us, b.wide_samples_us) : b.samples_us;
  if (of_one_race(a, b)) return compare_rounds(of_a, of_b, options);
  Comparison comparison = compare_times(of_a, of_b, options);
  // Too few samples is reason enough.
  if (comparison.interval)
    comparison.reason = "stored rows of different runs do not decide it: their drift is in no interval";
  comparison.verdict = Verdict::undecidable;
  return comparison;
}

}  // namespace attune
