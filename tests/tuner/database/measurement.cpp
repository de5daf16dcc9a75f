#include "tuner/database/measurement.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "generator/error.h"
#include "tests/catch.h"
#include "tests/tuner/test_files.h"
#include "tuner/database/database_rows.h"
#include "tuner/database/measurement_json.h"

using namespace attune;
using attune::test::example_measurement;

TEST_CASE("a row of version 0.1 is current by the last templates of its pass and family, and by no others", "[nogpu]") {
  const auto is_current = [](const char* problem, const char* config, const char* hash) {
    Measurement row = example_measurement(problem, config);
    row.source_hash = hash;
    return is_of_last_templates(row);
  };
  const char *forward = "sq1024 d64", *backward = "backward sq1024 d64", *sm80 = "sm80 q64 kv64 w4 st2",
             *sm90 = "sm90 q128 kv128 st2 rescale10";
  CHECK(is_current(forward, sm80, "templates:a2c9197d29983644"));
  CHECK(is_current(backward, sm80, "templates:504ccfd6950b1013"));
  CHECK_FALSE(is_current(forward, sm90, "templates:e9cbd44099937a8d"));  // its kernel is another one now
  CHECK_FALSE(is_current(backward, sm80, "templates:a2c9197d29983644"));
  CHECK_FALSE(is_current(forward, sm80, "templates:b0bcabef404e750d"));  // an older one
  CHECK_FALSE(is_current(forward, sm80, "a2c9197d29983644"));            // of a source
  CHECK_FALSE(is_current(forward, sm80, "templates:"));
  CHECK_FALSE(is_current(forward, sm80, ""));
}

TEST_CASE("quantiles, TFLOP/s and ranking", "[nogpu]") {
  REQUIRE(quantile({}, 0.5) == 0);
  REQUIRE(quantile({3}, 0.2) == 3);
  REQUIRE(quantile({4, 1, 3, 2}, 0.5) == Approx(2.5));
  REQUIRE(quantile({50, 10, 20, 30, 40, 60}, 0.2) == Approx(20));

  Measurement m = example_measurement("forward bf16 b1 hq1 sq1000 d64");
  m.samples_us = {40, 20, 30};
  m.clocks_mhz = {0, 1500, 1600};
  m.summarize();
  REQUIRE(m.median_us == 30);
  REQUIRE(m.p20_us == Approx(24));
  REQUIRE(m.p80_us == Approx(36));
  REQUIRE(m.sm_clock_mhz == 1550);
  REQUIRE(m.tflops() == Approx(4.0 * 64 * 1000 * 1000 / 30e-6 / 1e12));
  REQUIRE(Measurement().tflops() == 0);

  Measurement slower = m, estimate = m, nothing = m;
  slower.median_us = 31;
  estimate.rigor = Rigor::estimate;
  estimate.predicted_us = 1;
  nothing.median_us = 0;
  REQUIRE(ranks_before(m, slower));
  REQUIRE_FALSE(ranks_before(slower, m));
  REQUIRE(ranks_before(slower, estimate));
  REQUIRE(ranks_before(estimate, nothing));
  Measurement winner = slower, second = m, later = slower, lucky = m;
  winner.race = second.race = "2025-01-31T12:00:00.000000Z";
  winner.place = 1;
  second.place = 2;
  later.race = "2025-01-31T13:00:00.000000Z";
  later.place = 2;
  lucky.median_us = 1;
  REQUIRE(ranks_before(winner, second));
  REQUIRE_FALSE(ranks_before(second, winner));
  REQUIRE(ranks_before(second, lucky));
  REQUIRE_FALSE(ranks_before(lucky, second));
  REQUIRE(ranks_before(later, winner));
  lucky.rigor = Rigor::patient;
  REQUIRE(ranks_before(lucky, winner));
  Measurement twin = m;
  twin.config.block_q = 64;
  REQUIRE(ranks_before(m, twin) == (canonical_text(m.config) < canonical_text(twin.config)));
  REQUIRE(ranks_before(m, twin) != ranks_before(twin, m));
}

TEST_CASE("both spreads weigh the same, and which problems have wide scores", "[nogpu]") {
  CHECK(both_spreads(100, 100) == Approx(100));
  CHECK(both_spreads(50, 200) == Approx(both_spreads(100, 100)));
  CHECK(both_spreads(1, 4) == Approx(2));
  CHECK(both_spreads({4, 9}, {9, 16}) == std::vector<double>{6, 12});
  CHECK(both_spreads({4, 9}, {}) == std::vector<double>{4, 9});
  CHECK(races_wide(parse_problem("forward sq64 d64")));
  CHECK(races_wide(parse_problem("forward sq64 d64 scale2e37")));
  CHECK_FALSE(races_wide(parse_problem("forward sq64 d64 scale5e37")));  // times 8 and log2(e) it is beyond fp32
  CHECK_FALSE(races_wide(parse_problem("backward sq64 d64")));

  Measurement m = example_measurement();
  CHECK(m.wide_median_us == 0);
  m.wide_samples_us = {130, 120, 140};
  m.summarize();
  CHECK(m.wide_median_us == 130);
  CHECK(m.median_us == 100);  // what TFLOP/s and ranks are of
}

TEST_CASE("a row without wide times has the content hash that it always had", "[nogpu]") {
  Measurement m = example_measurement();
  m.race = "2025-01-31T12:00:00.000000Z";
  m.place = 2;
  m.sequence = 7;
  const std::string before = "428b51626e381059404967369130fd8e";  // as the fourth schema had it
  CHECK(content_hash(m) == before);
  m.wide_samples_us = {120, 121, 122};
  m.wide_median_us = 121;
  const std::string wide = content_hash(m);
  CHECK(wide != before);
  m.wide_samples_us[2] = 123;
  CHECK(content_hash(m) != wide);
  m.wide_samples_us.clear();  // as in presets
  CHECK(content_hash(m) != wide);
  CHECK(content_hash(m) != before);
}

TEST_CASE("a row of an unknown node has the content hash that it always had", "[nogpu]") {
  Measurement m = example_measurement();
  m.race = "2025-01-31T12:00:00.000000Z";
  m.place = 2;
  m.sequence = 7;
  const std::string before = "428b51626e381059404967369130fd8e";  // as the fourth schema had it
  CHECK(content_hash(m) == before);
  std::set<std::string> hashes = {before};
  const NodeGpu known = {"node-17", "GPU-1", "580.159.04", 700, 1980, 3201};
  m.node = known;
  hashes.insert(content_hash(m));
  for (std::string NodeGpu::*text : {&NodeGpu::host, &NodeGpu::gpu_uuid, &NodeGpu::driver_build}) {
    m.node = known;
    m.node.*text += "0";
    hashes.insert(content_hash(m));
  }
  for (int NodeGpu::*number : {&NodeGpu::power_limit_w, &NodeGpu::sm_clock_limit_mhz, &NodeGpu::memory_clock_mhz}) {
    m.node = known;
    m.node.*number += 1;
    hashes.insert(content_hash(m));
  }
  CHECK(hashes.size() == 8);
}

TEST_CASE("status and rigor have names that come back", "[nogpu]") {
  for (int i = 0; i <= static_cast<int>(MeasurementStatus::out_of_memory); ++i) {
    const auto status = static_cast<MeasurementStatus>(i);
    REQUIRE(parse_measurement_status(to_string(status)) == status);
  }
  for (int i = 0; i <= static_cast<int>(Rigor::exhaustive); ++i) {
    REQUIRE(parse_rigor(to_string(static_cast<Rigor>(i))) == static_cast<Rigor>(i));
  }
  REQUIRE(to_string(MeasurementStatus::wrong_result) == "wrong_result");
  REQUIRE(to_string(MeasurementStatus::out_of_memory) == "out_of_memory");
  REQUIRE_FALSE(parse_measurement_status("fine"));
  REQUIRE_FALSE(parse_rigor(""));
}

TEST_CASE("a measurement survives JSON", "[nogpu]") {
  Measurement m = example_measurement();
  m.error_lse = std::numeric_limits<double>::infinity();
  m.samples_us[0] = 1.0 / 3;
  const std::string line = measurement_to_json(m).dump();
  REQUIRE(line.find('\n') == std::string::npos);
  const Measurement back = measurement_from_json(nlohmann::json::parse(line));
  REQUIRE(measurement_to_json(back).dump() == line);
  REQUIRE(back.problem == m.problem);
  REQUIRE(back.config == m.config);
  REQUIRE(back.samples_us == m.samples_us);
  REQUIRE(back.error_lse == m.error_lse);
  REQUIRE(back.shared_bytes == m.shared_bytes);
  REQUIRE(back.created_at == m.created_at);
  REQUIRE_FALSE(measurement_to_json(m).contains("race"));
  REQUIRE_FALSE(measurement_to_json(m).contains("place"));
  m.race = "2025-01-31T12:00:00.000000Z";
  m.place = 3;
  REQUIRE(measurement_from_json(measurement_to_json(m)).race == m.race);
  REQUIRE(measurement_from_json(measurement_to_json(m)).place == 3);
  REQUIRE_FALSE(measurement_to_json(m).contains("wide_samples_us"));
  REQUIRE_FALSE(measurement_to_json(m).contains("wide_median_us"));
  m.wide_samples_us = {1.0 / 3, 2, 3};
  m.wide_median_us = 2;
  REQUIRE(measurement_from_json(measurement_to_json(m)).wide_samples_us == m.wide_samples_us);
  REQUIRE(measurement_from_json(measurement_to_json(m)).wide_median_us == 2);
  m.error_o = std::numeric_limits<double>::quiet_NaN();
  REQUIRE(std::isnan(measurement_from_json(measurement_to_json(m)).error_o));

  for (const char* bad : {"[]", R"({"median_us": "fast"})", R"({"status": "fine"})", R"({"registers": "many"})",
                          R"({"config": "sm80 q7x"})", R"({"samples_us": [1, "x"]})"}) {
    INFO(bad);
    REQUIRE_THROWS_AS(measurement_from_json(nlohmann::json::parse(bad)), Error);
  }
  REQUIRE_THROWS_WITH(measurement_from_json(nlohmann::json::parse(R"({"sm_count": "many"})")),
                      ContainsSubstring("sm_count"));
}

TEST_CASE("every known device survives JSON", "[nogpu]") {
  for (const DeviceSpec& spec : known_devices()) {
    REQUIRE(device_spec_from_json(nlohmann::json::parse(device_spec_to_json(spec).dump())) == spec);
  }
}
