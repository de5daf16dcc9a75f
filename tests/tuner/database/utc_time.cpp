#include "tuner/database/utc_time.h"

#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/tuner/test_files.h"
#include "tuner/database/measurement.h"

using namespace attune;

TEST_CASE("a time has one form, whose texts are in the order of times", "[nogpu]") {
  const auto form = [](const char* text) { return canonical_time(text).value_or("none"); };
  CHECK(form("2026-01-31T12:00:00Z") == "2026-01-31T12:00:00.000000Z");
  CHECK(form("2026-01-31T12:00:00.9Z") == "2026-01-31T12:00:00.900000Z");
  CHECK(form("2026-01-31T12:00:00.123456Z") == "2026-01-31T12:00:00.123456Z");
  CHECK(form("2026-01-31T12:00:00.123456999Z") == "2026-01-31T12:00:00.123456Z");
  CHECK(form("2024-02-29T23:59:59Z") == "2024-02-29T23:59:59.000000Z");
  CHECK(form("2000-02-29T00:00:00Z") == "2000-02-29T00:00:00.000000Z");
  for (const char* none : {"",
                           "Z",
                           "2026-01-31",
                           "2026-01-31T12:00:00",
                           "2026-01-31 12:00:00Z",
                           "2026-99-99T99:99:99Z",
                           "2026-00-31T12:00:00Z",
                           "2026-13-01T12:00:00Z",
                           "2026-01-00T12:00:00Z",
                           "2026-01-32T12:00:00Z",
                           "2026-04-31T12:00:00Z",
                           "2026-02-29T12:00:00Z",
                           "1900-02-29T12:00:00Z",
                           "2026-01-31T24:00:00Z",
                           "2026-01-31T12:60:00Z",
                           "2026-01-31T12:00:60Z",
                           "2026-01-31T12:00:00.Z",
                           "2026-01-31T12:00:00.9xZ",
                           "2026-01-31T12:00:00,9Z",
                           "2026-01-31T12:00:00+00:00",
                           "2026-01-31T12:00:00z",
                           "2O26-01-31T12:00:00Z",
                           "2026-01-31T12:00:00Z ",
                           " 2026-01-31T12:00:00Z",
                           "2026-1-31T12:00:00Z"}) {
    INFO(none);
    CHECK(form(none) == "none");
    CHECK(time_order(none) == none);
  }
  const std::string now = utc_now();
  CHECK(canonical_time(now) == now);
  const std::vector<const char*> rising = {"2025-12-31T23:59:59.999999Z", "2026-01-01T00:00:00Z",
                                           "2026-01-01T00:00:00.5Z", "2026-01-01T00:00:00.51Z", "2026-01-01T00:00:01Z"};
  for (std::size_t i = 1; i < rising.size(); ++i) CHECK(time_order(rising[i - 1]) < time_order(rising[i]));
}

TEST_CASE("which row is newer, and which race, is a question of times and not of texts", "[nogpu]") {
  Measurement earlier = test::example_measurement(), later = earlier;
  earlier.created_at = "2026-01-01T00:00:00Z";
  later.created_at = "2026-01-01T00:00:00.9Z";
  CHECK(is_newer(later, earlier));
  CHECK_FALSE(is_newer(earlier, later));
  earlier.race = "2026-01-01T00:00:00Z";
  later.race = "2026-01-01T00:00:00.9Z";
  earlier.place = later.place = 1;
  CHECK(ranks_before(later, earlier));
  CHECK_FALSE(ranks_before(earlier, later));
  later.race = "2026-01-01T00:00:00.000Z";  // the same time
  later.median_us = 2 * earlier.median_us;
  CHECK(ranks_before(earlier, later));
}

TEST_CASE("a row whose time is none was not measured", "[nogpu]") {
  Measurement row = test::example_measurement();
  CHECK(impossibility(row).empty());
  row.created_at = "2026-99-99T99:99:99Z";
  CHECK_THAT(impossibility(row), ContainsSubstring("2026-99-99T99:99:99Z") && ContainsSubstring("none"));
  row = test::example_measurement();
  row.race = "yesterday";
  row.place = 1;
  CHECK_THAT(impossibility(row), ContainsSubstring("yesterday"));
}
