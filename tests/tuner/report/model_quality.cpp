#include "tuner/report/model_quality.h"

#include <cmath>
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/tuner/test_files.h"

using namespace attune;
using attune::test::example_measurement;

namespace model_quality_test {
namespace {

const char* const kProblem = "forward bf16 b2 hq8 sq1024 d64 causal";

}  // namespace

TEST_CASE("report: Spearman's rank correlation against known values", "[nogpu]") {
  CHECK(rank_correlation({1, 2, 3, 4}, {10, 20, 30, 40}).value() == Approx(1));
  CHECK(rank_correlation({1, 2, 3, 4}, {4, 3, 2, 1}).value() == Approx(-1));
  // Ten pairs with differences of ranks whose squares sum to 194: 1 - 6 * 194 / (10 * 99).
  CHECK(rank_correlation({106, 100, 86, 101, 99, 103, 97, 113, 112, 110}, {7, 27, 2, 50, 28, 29, 20, 12, 6, 17})
            .value() == Approx(1 - 6.0 * 194 / 990));
  // Ties have their mean rank: ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4 give 4.5 / sqrt(4.5 * 5).
  CHECK(rank_correlation({1, 2, 2, 3}, {1, 2, 3, 4}).value() == Approx(4.5 / std::sqrt(4.5 * 5)));
  CHECK_FALSE(rank_correlation({1, 2}, {1, 2}).has_value());
  CHECK_FALSE(rank_correlation({1, 1, 1}, {1, 2, 3}).has_value());
}

TEST_CASE("report: how well the model foretold", "[nogpu]") {
  std::vector<Measurement> rows;
  for (int i = 0; i < 12; ++i) {
    // The model's order is that of i; the twelfth is the best, the third and the fourth lie near it.
    const double median = i == 11 ? 100 : i == 2 ? 102.9 : i == 3 ? 103.1 : 120 + i;
    Measurement row = example_measurement(kProblem, "sm80 q128 kv" + std::to_string(16 * (i + 1)) + " w4 st2", median);
    row.predicted_us = 50 + i;
    rows.push_back(row);
  }
  rows[0].status = MeasurementStatus::spilled;
  Measurement estimate = example_measurement(kProblem, "sm80 q64 kv64 w4 st2", 0);
  estimate.rigor = Rigor::estimate;
  estimate.predicted_us = 1;
  rows.push_back(estimate);

  const ModelQuality quality = model_quality(rows, 100);
  CHECK(quality.compared == 11);
  CHECK(quality.first == 10);
  CHECK(quality.first_near_best == 1);
  CHECK(quality.first_over_best == Approx(1.029));
  REQUIRE(quality.rank_correlation.has_value());

  SECTION("a config is judged by the newest row of its highest rigor, whatever the order of the rows") {
    Measurement again = rows[3];
    again.created_at = "2026-01-01T00:00:00.000000Z";
    again.median_us = 101;
    rows.insert(rows.begin(), again);
    CHECK(model_quality(rows, 100).first_near_best == 2);
    CHECK(model_quality(rows, 100).compared == 11);
    rows.front().created_at = "2024-01-01T00:00:00.000000Z";
    CHECK(model_quality(rows, 100).first_near_best == 1);
  }
  SECTION("nothing measured") {
    const ModelQuality none = model_quality({estimate}, 0);
    CHECK(none.compared == 0);
    CHECK(none.first == 0);
    CHECK(none.first_over_best == 0);
  }
}

}  // namespace model_quality_test
