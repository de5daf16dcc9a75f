#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace attune {

struct Interval {
  double low = 0, high = 0;
};

/// The interval between two order statistics that holds the median of the distribution a sample came from, with at
/// least this confidence, whatever the distribution. Of the sorted sample x(1) ... x(n) it is [x(k), x(n + 1 - k)] with
/// the largest k for which
///   P(median outside) = 2 P(Binomial(n, 1/2) < k) <= 1 - confidence
/// (H. A. David, H. N. Nagaraja: Order Statistics, 3rd ed., section 7.1). Nothing if the sample is too small for k = 1:
/// 95 % needs 6 values, 97.5 % needs 7.
std::optional<Interval> median_interval(std::vector<double> sample, double confidence);

enum class Verdict { faster, slower, same, undecidable };
std::string_view to_string(Verdict verdict);  ///< "faster", "slower", "same", "not decidable"

struct ComparisonOptions {
  double confidence = 0.95;
  double margin = 0.005;  ///< medians closer than this part of each other are the same for all purposes
};

/// A's time over B's.
struct Comparison {
  Verdict verdict = Verdict::undecidable;  ///< of A against B
  double ratio = 0;                        ///< median of A over median of B; 0 if one of them has no samples
  std::optional<Interval> interval;        ///< of the ratio
  std::string reason;                      ///< why it is not decidable, or needs no times; else empty
};

/// Judges samples of two times, each greater than 0. With intervals [al, ah], [bl, bh] of the two medians, each at half
/// of the allowed error (Bonferroni), the ratio of the medians lies in [al / bh, ah / bl] at the confidence asked for.
/// same: that lies within 1 -+ margin; faster: it lies below 1; slower: above 1; otherwise not decidable. Holds for
/// independent samples; a drift between two runs is not in them.
Comparison compare_times(const std::vector<double>& a, const std::vector<double>& b,
                         const ComparisonOptions& options = {});

/// The same for times that were taken alternately: the i-th of both are of one round, so that what the two of a round
/// share (clocks, heat) is no noise, nor a drift. The interval is that of the median of the rounds' ratios. Both have
/// the same number of samples.
Comparison compare_rounds(const std::vector<double>& a, const std::vector<double>& b,
                          const ComparisonOptions& options = {});

}  // namespace attune
