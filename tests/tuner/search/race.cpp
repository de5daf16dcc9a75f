// Who goes into a final race, and who wins it.
#include "tuner/search/race.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <random>

#include "tests/catch.h"

using namespace attune;

namespace {

const KernelConfig kDefault = parse_config("sm80 q128 kv64 w4 st2");

Measurement row(const char* config, double median_us, MeasurementStatus status = MeasurementStatus::ok) {
  Measurement m;
  m.config = parse_config(config);
  m.median_us = median_us;
  m.status = status;
  return m;
}

using Indices = std::vector<std::size_t>;

// Rounds with common drift and noise of each sample.
std::vector<std::vector<double>> rounds(const std::vector<double>& times, int count, double drift, double noise,
                                        unsigned seed = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<std::vector<double>> samples(times.size());
  for (int round = 0; round < count; ++round) {
    for (std::size_t i = 0; i < times.size(); ++i)
      samples[i].push_back(times[i] * (1 + drift * round / count) * (1 + noise * normal(random)));
  }
  return samples;
}

}  // namespace

TEST_CASE("finalists: within reach of the fastest, the default whatever its time", "[nogpu]") {
  const std::vector<Measurement> rows = {row("sm80 q128 kv64 w4 st2", 120), row("sm80 q64 kv64 w4 st2", 100),
                                         row("sm80 q64 kv32 w4 st2", 102.9), row("sm80 q64 kv48 w4 st2", 103.1),
                                         row("sm80 q64 kv80 w4 st2", 1, MeasurementStatus::wrong_result)};
  CHECK(finalists(rows, kDefault) == Indices{1, 2, 0});
  CHECK(finalists(rows, kDefault, {.reach = 1.0}) == Indices{1, 0});
  CHECK(finalists(rows, kDefault, {.max_finalists = 1}) == Indices{1, 0});
  CHECK(finalists(rows, parse_config("sm80 q64 kv48 w4 st2")) == Indices{1, 2, 3});
  CHECK(finalists(rows, parse_config("sm80 q64 kv80 w4 st2")) == Indices{1, 2});  // a default that failed stays out
  CHECK(finalists({}, kDefault).empty());
  CHECK(finalists({row("sm80 q64 kv80 w4 st2", 0)}, kDefault).empty());

  SECTION("the last row of a config stands for it") {
    std::vector<Measurement> again = rows;
    again.push_back(row("sm80 q64 kv64 w4 st2", 110));
    CHECK(finalists(again, kDefault) == Indices{2, 3, 0});
    again.push_back(row("sm80 q64 kv32 w4 st2", 0, MeasurementStatus::crashed));
    CHECK(finalists(again, kDefault) == Indices{3, 0});
  }
}

TEST_CASE("places: the fastest beyond doubt wins through drift that is larger than the difference", "[nogpu]") {
  const std::vector<KernelConfig> configs = {kDefault, parse_config("sm80 q64 kv64 w4 st2"),
                                             parse_config("sm80 q64 kv32 w4 st2")};
  CHECK(places(configs, rounds({102, 100, 101}, 40, 0.2, 0.002), kDefault) == Indices{1, 2, 0});
  CHECK(places(configs, rounds({100, 102, 101}, 40, 0.2, 0.002), kDefault) == Indices{0, 2, 1});
}

TEST_CASE("places: ties go to the default, else to the first by canonical text", "[nogpu]") {
  const KernelConfig a = parse_config("sm80 q128 kv32 w4 st2"), b = parse_config("sm80 q64 kv64 w4 st2");
  for (unsigned seed = 1; seed <= 20; ++seed) {
    INFO(seed);
    CHECK(places({b, kDefault, a}, rounds({100, 100.2, 100.1}, 30, 0.1, 0.003, seed), kDefault).front() == 1);
    // Two runs agree although either may be ahead.
    CHECK(places({b, a}, rounds({100, 100.1}, 30, 0.1, 0.003, seed), kDefault).front() == 1);
  }
  // A difference that is certain and too small to matter is a tie, too.
  CHECK(places({b, kDefault}, rounds({100, 100.3}, 200, 0, 0.0001), kDefault) == Indices{1, 0});
  CHECK(places({b, kDefault}, rounds({100, 100.8}, 200, 0, 0.0001), kDefault) == Indices{0, 1});
  // What cannot be told from the fastest but is slower than the default does not win by its text.
  const KernelConfig slow = parse_config("sm80 q128 kv128 w4 st2");
  REQUIRE(canonical_text(slow) < canonical_text(b));
  std::vector<std::vector<double>> noisy = rounds({100, 101, 101.5}, 40, 0, 0.0001);
  std::fill_n(noisy[2].begin(), 16, 99);  // of 40: its median stays, the interval of it reaches down to here
  CHECK(places({b, slow}, {noisy[0], noisy[2]}, kDefault) == Indices{0, 1});  // nor by it alone
  noisy[2] = rounds({100.2}, 40, 0, 0.0001)[0];
  CHECK(places({b, slow}, {noisy[0], noisy[2]}, kDefault) == Indices{1, 0});
  noisy[2] = rounds({101.5}, 40, 0, 0.0001)[0];
  CHECK(places({b, kDefault, slow}, noisy, kDefault) == Indices{0, 1, 2});
  // Too few rounds decide nothing.
  CHECK(places({b, kDefault}, rounds({100, 120}, 4, 0, 0), kDefault) == Indices{1, 0});
  CHECK(places({b}, {{1, 1, 1}}, kDefault) == Indices{0});
  CHECK(places({}, {}, kDefault).empty());
}

namespace {

// Rows of trials, and a race whose times are the truth's with noise.
struct Simulated {
  std::vector<Measurement> trials;
  std::vector<double> truth, wide_truth;  // the second empty: no times with wide scores
  int batches = 0;
  std::size_t most_entrants = 0;

  void add(const char* config, double trial_us, double true_us) {
    trials.push_back(row(config, trial_us));
    truth.push_back(true_us);
  }
  // Its trial has no noise.
  void add_wide(const char* config, double true_us, double wide_us) {
    add(config, true_us, true_us);
    wide_truth.push_back(wide_us);
  }
  std::vector<std::size_t> run(FinalRace& race, double noise, unsigned seed = 1) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    while (const auto batch = race.next()) {
      ++batches;
      most_entrants = std::max(most_entrants, batch->entrants.size());
      std::vector<std::vector<double>> samples, wide_samples;
      for (const std::size_t i : batch->entrants) {
        std::vector<double>& list = samples.emplace_back();
        for (int round = 0; round < batch->min_rounds; ++round) list.push_back(truth[i] * (1 + noise * normal(random)));
        if (wide_truth.empty()) continue;
        std::vector<double>& wide = wide_samples.emplace_back();
        for (int round = 0; round < batch->min_rounds; ++round)
          wide.push_back(wide_truth[i] * (1 + noise * normal(random)));
      }
      race.tell(samples, wide_samples,
                std::vector<std::vector<int>>(samples.size(), std::vector<int>(samples[0].size(), 1980)));
    }
    std::vector<std::size_t> order;
    for (const FinalRace::Finalist& finalist : race.standings()) order.push_back(finalist.trial);
    return order;
  }
};

constexpr const char* kOthers[] = {"sm80 q64 kv64 w4 st2", "sm80 q64 kv32 w4 st2", "sm80 q64 kv48 w4 st2",
                                   "sm80 q64 kv80 w4 st2", "sm80 q64 kv96 w4 st2"};

}  // namespace

TEST_CASE("a final race ends when it is decided, and not before", "[nogpu]") {
  Simulated simulated;
  simulated.add("sm80 q128 kv64 w4 st2", 100, 100);
  simulated.add(kOthers[0], 97, 97);
  SECTION("a clear difference needs one batch") {
    FinalRace race(simulated.trials, kDefault, 0.5);
    CHECK(simulated.run(race, 0.001) == Indices{1, 0});
    CHECK(simulated.batches == 1);
    CHECK(race.standings()[0].samples_us.size() == FinalRace::kRounds);
    CHECK(race.standings()[0].clocks_mhz.size() == FinalRace::kRounds);
  }
  SECTION("a small one in much noise needs more, and ends all the same") {
    simulated.truth[1] = 99.5;
    FinalRace race(simulated.trials, kDefault, 0.5);
    CHECK(simulated.run(race, 0.02).front() == 0);
    CHECK(simulated.batches > 1);
    CHECK(simulated.batches <= FinalRace::kMostBatches);
  }
  SECTION("where launches are long its time is up after two batches") {
    for (Measurement& trial : simulated.trials) trial.median_us *= 1e3;
    for (double& truth : simulated.truth) truth *= 1e3;
    simulated.truth[1] = 99.9e3;
    FinalRace race(simulated.trials, kDefault, 0.5);
    CHECK(simulated.run(race, 0.05).front() == 0);
    CHECK(simulated.batches == 2);
  }
  SECTION("one alone is timed once; nobody is nothing") {
    FinalRace alone({simulated.trials[1]}, kDefault, 0.5);
    CHECK(simulated.run(alone, 0.01) == Indices{0});
    CHECK(simulated.batches == 1);
    CHECK_FALSE(FinalRace({}, kDefault, 0.5).next());
    CHECK(FinalRace({}, kDefault, 0.5).standings().empty());
  }
}

TEST_CASE("a final race asks in as many as the noise between trials needs", "[nogpu]") {
  Simulated simulated;
  // The best is 9 % behind by its trial.
  simulated.add("sm80 q128 kv64 w4 st2", 106, 106);
  simulated.add(kOthers[0], 100, 104);
  simulated.add(kOthers[1], 101, 106);
  simulated.add(kOthers[2], 103, 101.5);
  simulated.add(kOthers[3], 109, 100);
  simulated.add(kOthers[4], 180, 180);
  SECTION("trials that scatter") {
    FinalRace race(simulated.trials, kDefault, 0.5);
    CHECK(simulated.run(race, 0.002).front() == 4);
    CHECK(simulated.most_entrants == 5);
  }
  SECTION("trials that do not") {
    for (std::size_t i = 0; i < simulated.trials.size(); ++i) simulated.trials[i].median_us = simulated.truth[i];
    FinalRace race(simulated.trials, kDefault, 0.5);
    CHECK(simulated.run(race, 0.002).front() == 4);
    CHECK(simulated.most_entrants == 5);  // within 6 %
    simulated.truth[0] = simulated.trials[0].median_us = 120;
    simulated.most_entrants = 0;
    FinalRace without(simulated.trials, parse_config(kOthers[0]), 0.5);
    CHECK(simulated.run(without, 0.002).front() == 4);
    CHECK(simulated.most_entrants == 4);
  }
  SECTION("a batch that failed is run again between the fewest, once") {
    for (int i = 0; i < 10; ++i)
      simulated.add(("sm80 q32 kv" + std::to_string(16 * (i + 1)) + " w2 st2").c_str(), 103, 103);
    FinalRace race(simulated.trials, kDefault, 0.5);
    REQUIRE(race.next());
    REQUIRE(race.next()->entrants.size() > FinalRace::kFewestFinalists + 1);
    REQUIRE(race.narrow());
    REQUIRE(race.next()->entrants.size() <= FinalRace::kFewestFinalists + 1);
    REQUIRE_FALSE(race.narrow());
    CHECK(race.standings().empty());
  }
}

TEST_CASE("a final race ranks by the geometric mean of both spreads", "[nogpu]") {
  const char* const standard = "sm80 q128 kv64 w4 st2";
  const auto order = [&](std::initializer_list<std::array<double, 2>> times, double noise = 0.001) {
    Simulated simulated;
    int other = 0;
    for (const auto& [us, wide_us] : times)
      simulated.add_wide(simulated.trials.empty() ? standard : kOthers[other++], us, wide_us);
    FinalRace race(simulated.trials, kDefault, 0.5);
    const Indices places = simulated.run(race, noise);
    for (const FinalRace::Finalist& finalist : race.standings()) {
      CHECK(finalist.samples_us.size() >= FinalRace::kRounds);
      CHECK(finalist.wide_samples_us.size() == finalist.samples_us.size());
      CHECK(finalist.clocks_mhz.size() == finalist.samples_us.size());
    }
    return places;
  };
  // What is fastest with the problem's own scores and far slower with wide ones loses to what is even on both.
  CHECK(order({{112, 113}, {100, 140}, {104, 106}}) == Indices{2, 0, 1});
  CHECK(order({{112, 113}, {104, 106}, {100, 140}}) == Indices{1, 0, 2});
  // The other way round it may be 12 % behind there.
  CHECK(order({{113, 113}, {100, 110}, {112, 80}}).front() == 2);
  // The mean is the geometric one: by the sum of both times the second would win here.
  CHECK(order({{114, 400}, {100, 200}, {105, 194}}).front() == 1);
  CHECK(order({{114, 400}, {100, 200}, {105, 188}}).front() == 2);
  // Ties go to the default: also one of a gain here and a loss there.
  CHECK(order({{105, 105}, {100, 110.25}}).front() == 0);
  CHECK(order({{104, 100}, {100, 104}, {100, 110}}).front() == 0);
  CHECK(order({{104, 100}, {100, 102}}).front() == 1);
  CHECK(order({{104, 100}, {100, 130}}, 0.02).front() == 0);
}

TEST_CASE("a final race with wide scores: the noise of trials, and its time", "[nogpu]") {
  Simulated simulated;
  SECTION("what wide scores change is no noise of the trials") {
    simulated.add_wide("sm80 q128 kv64 w4 st2", 100, 100);
    simulated.add_wide(kOthers[0], 101, 160);
    simulated.add_wide(kOthers[1], 102, 90);
    simulated.add_wide(kOthers[2], 120, 120);  // beyond the reach of a first batch, within that of much noise
    FinalRace race(simulated.trials, kDefault, 0.5);
    CHECK(simulated.run(race, 0.001).front() == 2);
    CHECK(simulated.most_entrants == 3);
  }
  SECTION("the time of both counts") {
    simulated.add_wide("sm80 q128 kv64 w4 st2", 2e3, 200e3);
    simulated.add_wide(kOthers[0], 2.002e3, 200.1e3);
    FinalRace race(simulated.trials, kDefault, 0.5);
    simulated.run(race, 0.05);
    CHECK(simulated.batches == 2);
  }
}

TEST_CASE("rows with wide times are compared by both spreads, others by the problem's own", "[nogpu]") {
  Measurement a = row(kOthers[0], 0), b = row(kOthers[1], 0);
  for (int i = 0; i < 40; ++i) {
    a.samples_us.push_back(90 + 0.001 * i);
    b.samples_us.push_back(100 + 0.001 * i);
    a.wide_samples_us.push_back(150 + 0.001 * i);
    b.wide_samples_us.push_back(100 + 0.001 * i);
  }
  a.summarize();
  b.summarize();
  a.race = b.race = "2026-01-31T12:00:00Z";
  CHECK(have_both_spreads(a, b));
  const Comparison both = compare_rows(a, b);
  CHECK(both.verdict == Verdict::slower);
  CHECK(both.ratio == Approx(std::sqrt(0.9 * 1.5)).epsilon(1e-4));
  CHECK(ratio_of_medians(a, b) == Approx(std::sqrt(0.9 * 1.5)).epsilon(1e-4));
  Measurement without = b;
  without.wide_samples_us.clear();
  without.summarize();
  CHECK_FALSE(have_both_spreads(a, without));
  CHECK(compare_rows(a, without).verdict == Verdict::faster);
  CHECK(ratio_of_medians(a, without) == Approx(0.9).epsilon(1e-4));
}

TEST_CASE("rows of different runs have a ratio and no verdict", "[nogpu]") {
  Measurement a = row(kOthers[0], 90), b = row(kOthers[1], 100);
  for (int i = 0; i < 40; ++i) {
    a.samples_us.push_back(90 + 0.001 * i);
    b.samples_us.push_back(100 + 0.001 * i);
  }
  const Comparison apart = compare_rows(a, b);
  CHECK(apart.verdict == Verdict::undecidable);
  CHECK(apart.ratio == Approx(0.9).epsilon(0.001));
  REQUIRE(apart.interval);
  CHECK(apart.interval->high < 1);
  CHECK_THAT(apart.reason, ContainsSubstring("different runs"));
  CHECK(compare_rows(a, a).verdict == Verdict::same);  // a copy
  a.race = b.race = "2026-01-31T12:00:00Z";
  CHECK(compare_rows(a, b).verdict == Verdict::faster);
}
