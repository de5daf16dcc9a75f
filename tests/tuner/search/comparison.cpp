// Verdicts on samples whose answers are known: tables of the binomial distribution, and distributions that are the same
// or apart by construction.
#include "tuner/search/comparison.h"

#include <cmath>
#include <random>

#include "tests/catch.h"

using namespace attune;

namespace {

std::vector<double> counted(int n) {
  std::vector<double> values;
  for (int i = n; i >= 1; --i) values.push_back(i);
  return values;
}

std::vector<double> noisy(double median, double spread, int n, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> noise(0, spread);
  std::vector<double> values;
  for (int i = 0; i < n; ++i) values.push_back(median * std::exp(noise(random)));
  return values;
}

}  // namespace

TEST_CASE("the interval of a median has the ranks of published tables", "[nogpu]") {
  struct Case {
    int n, low, high;
  };
  // Ranks for 95 % confidence, as tables of the sign test print them.
  const Case expected =
      GENERATE(values<Case>({{6, 1, 6}, {8, 1, 8}, {9, 2, 8}, {10, 2, 9}, {20, 6, 15}, {50, 18, 33}, {100, 40, 61}}));
  const auto interval = median_interval(counted(expected.n), 0.95);
  INFO("n = " << expected.n);
  REQUIRE(interval);
  CHECK(interval->low == expected.low);
  CHECK(interval->high == expected.high);
}

TEST_CASE("too small a sample has no interval", "[nogpu]") {
  CHECK_FALSE(median_interval({}, 0.95));
  CHECK_FALSE(median_interval(counted(1), 0.95));
  CHECK_FALSE(median_interval(counted(5), 0.95));
  CHECK(median_interval(counted(5), 0.9));
  CHECK_FALSE(median_interval(counted(6), 0.975));
  CHECK(median_interval(counted(7), 0.975));
}

TEST_CASE("the interval of a median holds it as often as promised", "[nogpu]") {
  int held = 0;
  constexpr int kTrials = 2000;
  for (std::uint32_t seed = 0; seed < kTrials; ++seed) {
    const auto interval = *median_interval(noisy(100, 0.3, 15, seed), 0.95);
    held += interval.low <= 100 && 100 <= interval.high;
  }
  // Ranks 4 and 12 of 15 hold it with 96.5 %; five standard deviations of the count are 2 %.
  CHECK(held > 0.945 * kTrials);
  CHECK(held < 0.985 * kTrials);
}

TEST_CASE("verdicts on samples that are apart, equal, noisy, or few", "[nogpu]") {
  const auto fast = noisy(95, 0.005, 40, 1), slow = noisy(100, 0.005, 40, 2);
  const Comparison faster = compare_times(fast, slow), slower = compare_times(slow, fast);
  CHECK(faster.verdict == Verdict::faster);
  CHECK(slower.verdict == Verdict::slower);
  REQUIRE(faster.interval);
  CHECK(faster.interval->low <= faster.ratio);
  CHECK(faster.ratio <= faster.interval->high);
  CHECK(faster.ratio == Approx(0.95).margin(0.005));
  CHECK(slower.interval->low == Approx(1 / faster.interval->high));

  CHECK(compare_times(noisy(100, 0.001, 40, 3), noisy(100, 0.001, 40, 4)).verdict == Verdict::same);

  const Comparison drowned = compare_times(noisy(100, 0.1, 40, 5), noisy(101, 0.1, 40, 6));
  CHECK(drowned.verdict == Verdict::undecidable);
  CHECK(drowned.interval);
  CHECK_THAT(drowned.reason, ContainsSubstring("noise"));

  const Comparison few = compare_times(noisy(50, 0.001, 6, 7), noisy(100, 0.001, 40, 8));
  CHECK(few.verdict == Verdict::undecidable);
  CHECK_FALSE(few.interval);
  CHECK(few.ratio == Approx(0.5).margin(0.01));
  CHECK_THAT(few.reason, ContainsSubstring("too few samples") && ContainsSubstring("6 and 40"));
  const Comparison untimed = compare_times({}, slow);
  CHECK(untimed.verdict == Verdict::undecidable);
  CHECK(untimed.ratio == 0);
  CHECK_THAT(untimed.reason, ContainsSubstring("no samples are stored"));
}

TEST_CASE("the margin decides what counts as the same", "[nogpu]") {
  const auto a = noisy(100, 0.0005, 60, 9), b = noisy(100.3, 0.0005, 60, 10);
  CHECK(compare_times(a, b).verdict == Verdict::same);
  CHECK(compare_times(a, b, {0.95, 0}).verdict == Verdict::faster);
  CHECK(compare_times(a, a, {0.95, 0}).verdict == Verdict::undecidable);
}

TEST_CASE("rounds taken alternately: what both share is no noise", "[nogpu]") {
  // A drift of 30 % in both, B 1 % slower than A; apart from each other nothing can be said.
  std::vector<double> a, b;
  for (int round = 0; round < 40; ++round) {
    const double drift = 1 + 0.3 * round / 40, wobble = 1 + 0.001 * (round % 3 - 1);
    a.push_back(100 * drift);
    b.push_back(101 * drift * wobble);
  }
  CHECK(compare_times(a, b).verdict == Verdict::undecidable);
  const Comparison in_turns = compare_rounds(a, b);
  CHECK(in_turns.verdict == Verdict::faster);
  CHECK(in_turns.ratio > 0.989);
  CHECK(in_turns.ratio < 0.991);
  REQUIRE(in_turns.interval);
  CHECK(in_turns.interval->low <= in_turns.ratio);
  CHECK(in_turns.interval->high >= in_turns.ratio);
  CHECK(compare_rounds(b, a).verdict == Verdict::slower);
  CHECK(compare_rounds(a, a).verdict == Verdict::same);

  const Comparison few = compare_rounds({1, 1, 1}, {2, 2, 2});
  CHECK(few.verdict == Verdict::undecidable);
  CHECK(few.ratio == 0.5);
  CHECK(few.reason.find("too few rounds") != std::string::npos);
  CHECK(compare_rounds({}, {}).ratio == 0);
}
