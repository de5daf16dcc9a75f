// Who goes into a final race, and who wins it.
#include "tuner/race.h"

#include <algorithm>
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
  CHECK(places({b, slow}, {noisy[0], noisy[2]}, kDefault) == Indices{1, 0});
  CHECK(places({b, kDefault, slow}, noisy, kDefault) == Indices{0, 1, 2});
  // Too few rounds decide nothing.
  CHECK(places({b, kDefault}, rounds({100, 120}, 4, 0, 0), kDefault) == Indices{1, 0});
  CHECK(places({b}, {{1, 1, 1}}, kDefault) == Indices{0});
  CHECK(places({}, {}, kDefault).empty());
}
