#include "tuner/search/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tuner/database/measurement.h"

namespace attune {
namespace {

/// P(Binomial(n, 1/2) = i).
double fair_binomial(std::size_t n, std::size_t i) {
  const auto real_n = static_cast<double>(n), real_i = static_cast<double>(i);
  return std::exp(std::lgamma(real_n + 1) - std::lgamma(real_i + 1) - std::lgamma(real_n - real_i + 1) -
                  real_n * std::log(2.0));
}

void judge(Comparison& comparison, const Interval& interval, const ComparisonOptions& options) {
  comparison.interval = interval;
  const auto [low, high] = interval;
  if (low >= 1 - options.margin && high <= 1 + options.margin) {
    comparison.verdict = Verdict::same;
  } else if (high < 1) {
    comparison.verdict = Verdict::faster;
  } else if (low > 1) {
    comparison.verdict = Verdict::slower;
  } else {
    comparison.reason = "the difference is within the noise of the samples";
  }
}

}  // namespace

std::optional<Interval> median_interval(std::vector<double> sample, double confidence) {
  const std::size_t n = sample.size();
  std::size_t k = 0;
  double below = 0;  // P(Binomial(n, 1/2) <= k)
  for (; 2 * k < n; ++k) {
    below += fair_binomial(n, k);
    if (2 * below > 1 - confidence) break;
  }
  if (k == 0) return std::nullopt;
  std::sort(sample.begin(), sample.end());
  return Interval{sample[k - 1], sample[n - k]};
}

std::string_view to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::faster:
      return "faster";
    case Verdict::slower:
      return "slower";
    case Verdict::same:
      return "same";
    case Verdict::undecidable:
      break;
  }
  return "not decidable";
}

Comparison compare_times(const std::vector<double>& a, const std::vector<double>& b, const ComparisonOptions& options) {
  Comparison result;
  if (!a.empty() && !b.empty()) result.ratio = quantile(a, 0.5) / quantile(b, 0.5);
  const double each = 1 - (1 - options.confidence) / 2;
  const auto of_a = median_interval(a, each), of_b = median_interval(b, each);
  if (!of_a || !of_b) {
    result.reason = a.empty() || b.empty() ? "no samples are stored of one of them, or of both"
                                           : fmt::format("too few samples for {:g} % confidence: {} and {}",
                                                         options.confidence * 100, a.size(), b.size());
    return result;
  }
  judge(result, {of_a->low / of_b->high, of_a->high / of_b->low}, options);
  return result;
}

Comparison compare_rounds(const std::vector<double>& a, const std::vector<double>& b,
                          const ComparisonOptions& options) {
  Comparison result;
  std::vector<double> ratios;
  for (std::size_t round = 0; round < std::min(a.size(), b.size()); ++round) ratios.push_back(a[round] / b[round]);
  if (!ratios.empty()) result.ratio = quantile(ratios, 0.5);
  const auto interval = median_interval(ratios, options.confidence);
  if (!interval) {
    result.reason = fmt::format("too few rounds for {:g} % confidence: {}", options.confidence * 100, ratios.size());
    return result;
  }
  judge(result, *interval, options);
  return result;
}

}  // namespace attune
