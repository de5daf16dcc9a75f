#include "tuner/database/database_json.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "generator/error.h"
#include "tests/catch.h"
#include "tests/tuner/database/database_files.h"
#include "tests/tuner/test_files.h"
#include "tuner/database/database_rows.h"

using namespace attune;
using attune::test::example_measurement;
using attune::test::require_equal;

namespace {

std::vector<Measurement> two_rows() {
  Measurement failed = example_measurement("forward fp16 b1 hq4 hkv2 sq77 skv99 d128");
  failed.status = MeasurementStatus::wrong_result;
  failed.reason = "o: element 17 is NaN; \"quoted\" \n and \u00fcber";
  failed.samples_us.clear();
  failed.clocks_mhz.clear();
  failed.summarize();
  failed.error_o = std::numeric_limits<double>::quiet_NaN();
  failed.error_lse = std::numeric_limits<double>::infinity();
  Measurement row = example_measurement();
  row.samples_us = {1.0 / 3, 1e-9, 123456.789};
  row.summarize();
  row.race = "2025-01-31T11:59:00.000000Z";
  row.place = 2;
  row.wide_samples_us = {2.0 / 3, 2e-9, 2};
  row.wide_median_us = 2.0 / 3;
  row.node = {"node-17", "GPU-1", "580.159.04", 700, 1980, 3201};
  return {row, failed};
}

std::string complaint_about(const std::string& text) {
  try {
    import_measurements(text, "file.json");
  } catch (const Error& error) {
    REQUIRE(error.code() == ErrorCode::invalid_argument);
    return error.what();
  }
  return "no complaint";
}

}  // namespace

TEST_CASE("an export comes back equal in every field, and reads as lines", "[nogpu]") {
  const std::vector<Measurement> rows = two_rows();
  const std::string text = export_measurements(rows);
  const std::vector<Measurement> back = import_measurements(text, "file.json");
  REQUIRE(back.size() == 2);
  require_equal(back[0], rows[0]);
  require_equal(back[1], rows[1]);
  REQUIRE(export_measurements(back) == text);
  REQUIRE_THAT(text, ContainsSubstring("\n      \"driver\": \"13.0\"") &&
                         ContainsSubstring("\n      \"error_o\": \"nan\"") &&
                         ContainsSubstring("\n      \"clocks_mhz\": [1605,1620,1635]"));
  REQUIRE(text.find("\"problem\"") < text.find("\"config\""));
  REQUIRE(nlohmann::json::parse(text).at("measurements").size() == 2);
  REQUIRE(import_measurements(export_measurements({}), "empty.json").empty());
  // A probe says nothing of races; one that says so in so many words is the same.
  const auto document = nlohmann::json::parse(text);
  REQUIRE(document.at("measurements").at(0).at("place") == 2);
  nlohmann::json probe = document;
  REQUIRE_FALSE(probe["measurements"][1].contains("race"));
  probe["measurements"][1]["race"] = "";
  probe["measurements"][1]["place"] = 0;
  require_equal(import_measurements(probe.dump(), "file.json").at(1), rows[1]);
}

TEST_CASE("a file of version 0.1 says the hash of templates, which stays what it is", "[nogpu]") {
  nlohmann::json document = nlohmann::json::parse(export_measurements(two_rows()));
  for (nlohmann::json& entry : document["measurements"]) {
    entry["templates_hash"] = entry["source_hash"];
    entry.erase("source_hash");
  }
  const std::vector<Measurement> rows = import_measurements(document.dump(), "old.json");
  REQUIRE(rows.size() == 2);
  for (const Measurement& row : rows) REQUIRE(row.source_hash == "templates:0123456789abcdef");
  REQUIRE(import_measurements(export_measurements(rows), "new.json")[0].source_hash == rows[0].source_hash);
  REQUIRE_THAT(export_measurements(rows), ContainsSubstring("\"source_hash\": \"templates:0123456789abcdef\""));
  // Its identity is that which version 0.1 gave it.
  Measurement bare = rows[0];
  bare.source_hash = "0123456789abcdef";
  REQUIRE(content_hash(rows[0]) == content_hash(bare));
  bare.source_hash = "0123456789abcdee";
  REQUIRE(content_hash(rows[0]) != content_hash(bare));

  document["measurements"][0]["source_hash"] = "0123456789abcdef";
  REQUIRE_THAT(complaint_about(document.dump()), ContainsSubstring("entry 1: it has both"));
  document["measurements"][0].erase("source_hash");
  document["measurements"][0]["templates_hash"] = 7;
  REQUIRE_THAT(complaint_about(document.dump()), ContainsSubstring("entry 1: field \"templates_hash\" is 7"));
  document["measurements"][0].erase("templates_hash");
  REQUIRE_THAT(complaint_about(document.dump()), ContainsSubstring("\"source_hash\" is missing"));
}

TEST_CASE("times come in any fraction of a second, and have one form from then on", "[nogpu]") {
  nlohmann::json document = nlohmann::json::parse(export_measurements(two_rows()));
  for (nlohmann::json& entry : document["measurements"]) {
    entry["created_at"] = "2026-01-31T12:00:00.9Z";
    entry["race"] = "2026-01-31T12:00:00Z";
    entry["place"] = 1;
  }
  for (const Measurement& row : import_measurements(document.dump(), "rows.json")) {
    REQUIRE(row.created_at == "2026-01-31T12:00:00.900000Z");
    REQUIRE(row.race == "2026-01-31T12:00:00.000000Z");
  }
}

TEST_CASE("what is malformed is named with its position, and nothing comes of the file", "[nogpu]") {
  const auto with = [](const std::string& key, const nlohmann::json& value) {
    nlohmann::json document = nlohmann::json::parse(export_measurements(two_rows()));
    nlohmann::json& entry = document["measurements"][1];
    if (value.is_null()) {
      entry.erase(key);
    } else {
      entry[key] = value;
    }
    return complaint_about(document.dump());
  };
  struct Wrong {
    std::string key;
    nlohmann::json value;
    std::string expected;
  };
  const std::vector<Wrong> wrongs = {
      {"problem", nullptr, "\"problem\" is missing"},
      {"created_at", nullptr, "\"created_at\" is missing"},
      {"compiler", nullptr, "\"compiler\" is missing"},
      {"problem", "forward bf16 b1 hq8 sq64 d9999", "head"},
      {"problem", "sideways", "sideways"},
      {"config", "sm80 nonsense", "nonsense"},
      {"status", "splendid", "splendid"},
      {"rigor", 3, "rigor"},
      {"median_us", "fast", "fast"},
      {"median_us", -1, "median_us"},
      {"median_us", "nan", "median_us"},
      {"wide_median_us", -1, "wide_median_us"},
      {"wide_samples_us", {1, "x", 3}, "wide_samples_us"},
      {"wide_samples_us", {1, -2, 3}, "wide_samples_us"},
      {"wide_samples_us", {1, 2}, "\"wide_samples_us\" has 2 elements, \"samples_us\" 0"},
      {"samples_us", {1, "x"}, "samples_us"},
      {"samples_us", {1, -2}, "samples_us"},
      {"clocks_mhz", {1.5}, "clocks_mhz"},
      {"clocks_mhz", {1, 2}, "clocks_mhz"},
      {"registers", 3.7, "registers"},
      {"registers", 1e300, "registers"},
      {"sm_count", 5'000'000'000, "sm_count"},
      {"sm_count", 0, "sm_count"},
      {"shared_bytes", -1, "shared_bytes"},
      {"created_at", "yesterday", "yesterday"},
      {"created_at", "2025-01-31T12:00:00.Z", "created_at"},
      {"created_at", "2026-99-99T99:99:99Z", "created_at"},
      {"created_at", "2026-02-29T00:00:00Z", "created_at"},
      {"race", "2026-99-99T99:99:99Z", "race"},
      {"medain_us", 3, "medain_us"},
      {"race", "2025-01-31T12:00:00Z", "\"place\" is 0"},
      {"place", 1, "\"race\" is \"\""},
      {"place", -1, "place"},
      {"place", 1.5, "place"},
      {"race", "today", "today"},
  };
  for (const Wrong& wrong : wrongs) {
    const std::string complaint = with(wrong.key, wrong.value);
    INFO(wrong.key << " = " << wrong.value << ": " << complaint);
    REQUIRE_THAT(complaint, ContainsSubstring("file.json: 1 of 2 entries malformed") &&
                                ContainsSubstring("entry 2: ") && ContainsSubstring(wrong.expected));
  }
  REQUIRE_THAT(complaint_about("{\n  \"format\": oops}"), ContainsSubstring("line 2, column"));
  REQUIRE_THAT(complaint_about(""), ContainsSubstring("not JSON"));
  REQUIRE_THAT(complaint_about("[]"), ContainsSubstring("not an export"));
  REQUIRE_THAT(complaint_about(R"({"format": "attune measurements", "measurements": 3})"),
               ContainsSubstring("not an export"));
  REQUIRE_THAT(complaint_about(R"({"format": "attune measurements", "version": 2, "measurements": []})"),
               ContainsSubstring("version 2"));
  REQUIRE_THAT(complaint_about(R"({"format": "attune measurements", "version": 1, "measurements": [3, "x"]})"),
               ContainsSubstring("2 of 2") && ContainsSubstring("entry 1") && ContainsSubstring("entry 2"));
}
