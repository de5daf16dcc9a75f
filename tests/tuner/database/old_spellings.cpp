// Files of schema 5 and older may hold problems with a mask that hides nothing, and times of any form: they are read as
// they are, as what they mean, and are written in one spelling once they are opened for writing.
#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "generator/error.h"
#include "tests/catch.h"
#include "tests/tuner/database/database_files.h"
#include "tests/tuner/test_files.h"
#include "tuner/database/database_doctor.h"
#include "tuner/database/database_json.h"
#include "tuner/database/database_maintenance.h"
#include "tuner/database/database_rows.h"
#include "tuner/database/database_schema.h"
#include "tuner/database/tuned_configs.h"
#include "tuner/database/tuning_database.h"

using namespace attune;
using attune::test::ask_sql;
using attune::test::ask_sql_text;
using attune::test::example_measurement;
using attune::test::measured_now;
using attune::test::run_sql;
using attune::test::TemporaryFolder;
using attune::test::test_build;
namespace fs = std::filesystem;

namespace {

constexpr const char* kDecoding = "forward bf16 b4 hq8 hkv2 sq1 skv4096 d128";
constexpr const char* kCausal = "forward bf16 b4 hq8 hkv2 sq1 skv4096 d128 causal";
constexpr const char* kWindow = "forward bf16 b4 hq8 hkv2 sq1 skv4096 d128 window=5000,open";
constexpr const char* kSlow = "sm80 q16 kv32 w1 st2";
constexpr const char* kFast = "sm80 q16 kv64 w1 st2";
constexpr const char* kMiddle = "sm80 q32 kv64 w2 st2";

Measurement row_of(const char* config, double us) {
  Measurement row = example_measurement(kDecoding, config, us);
  return measured_now(std::move(row));
}

// Gives a file's rows the hashes that fit what they hold.
void hash_anew(const fs::path& file) {
  sqlite::Connection connection(file.string(), SQLITE_OPEN_READWRITE);
  std::vector<std::pair<std::int64_t, std::string>> hashes;
  {
    read_as_newest(connection, 5);
    sqlite::Statement rows(connection, fmt::format("SELECT {}, m.id FROM {}", kRowColumns, kRowTables));
    while (rows.step()) hashes.emplace_back(rows.integer(kRowColumnCount), stored_content_hash(rows));
  }
  for (const auto& [id, hash] : hashes)
    sqlite::Statement(connection, "UPDATE main.measurement SET content_hash = ? WHERE id = ?")
        .bind(hash)
        .bind(id)
        .step();
}

// Makes a file of schema 5 of one of this version.
constexpr const char* kToSchema5 =
    "ALTER TABLE problem DROP COLUMN features; ALTER TABLE measurement DROP COLUMN host; ALTER TABLE measurement DROP "
    "COLUMN gpu_uuid; ALTER TABLE measurement DROP COLUMN driver_build; ALTER TABLE measurement DROP COLUMN "
    "power_limit_w; ALTER TABLE measurement DROP COLUMN sm_clock_limit_mhz; ALTER TABLE measurement DROP COLUMN "
    "memory_clock_mhz; PRAGMA user_version = 5";

// As schema 5 could store it: the slow row of the problem without a mask, the others of texts with one.
void begin_old_spellings(const fs::path& file) {
  {
    TuningDatabase database(file);
    for (const auto& [config, us] : {std::pair(kSlow, 300), std::pair(kFast, 100), std::pair(kMiddle, 200)})
      database.append(row_of(config, us));
  }
  run_sql(
      file,
      fmt::format("INSERT INTO problem SELECT 2, '{}', pass, dtype, batch, heads_q, heads_kv, seq_q, seq_kv, head_dim, "
                  "'causal', 4095, scale, layout, alignment, features FROM problem WHERE id = 1;"
                  "INSERT INTO problem SELECT 3, '{}', pass, dtype, batch, heads_q, heads_kv, seq_q, seq_kv, head_dim, "
                  "'window', {}, scale, layout, alignment, features FROM problem WHERE id = 1;"
                  "UPDATE measurement SET problem_id = 2 WHERE config = '{}';"
                  "UPDATE measurement SET problem_id = 3, created_at = '2025-02-01T12:00:00Z' WHERE config = '{}';"
                  "{}",
                  kCausal, kWindow, kOpenDiagonal, kFast, kMiddle, kToSchema5));
  hash_anew(file);
}

std::vector<std::string> configs_of(const std::vector<Measurement>& rows) {
  std::vector<std::string> configs;
  for (const Measurement& row : rows) configs.push_back(canonical_text(row.config));
  std::sort(configs.begin(), configs.end());
  return configs;
}

void require_one_problem(const TuningDatabase& database) {
  const AttentionProblem problem = parse_problem(kDecoding);
  const auto best = database.best(problem, "NVIDIA H200", 132);
  REQUIRE(best);
  CHECK(canonical_text(best->config) == kFast);
  CHECK(best->problem == problem);
  CHECK(configs_of(database.find_all(problem, "NVIDIA H200", 132)) == std::vector<std::string>{kSlow, kFast, kMiddle});
  REQUIRE(database.list().size() == 1);
  CHECK(database.list()[0].problem == problem);
  CHECK(database.list()[0].rows == 3);
  const auto near = database.near(problem, 132);
  REQUIRE(near.size() == 1);
  CHECK(near[0].same_problem);
  CHECK(near[0].problem == kDecoding);
  CHECK(near[0].distance == 0);
  // One that a causal mask does hide something of has no such row.
  CHECK(database.near(parse_problem("b4 hq8 hkv2 sq4096 d128 causal"), 132).empty());
  const auto ranked = database.ranked([](const std::string&, int) { return true; });
  REQUIRE(ranked.size() == 3);
  for (const TuningDatabase::Ranked& each : ranked) CHECK(each.problem == kDecoding);
  CHECK(ranked[0].config == kFast);
}

}  // namespace

TEST_CASE("rows of masks that hide nothing are found in a file that is only read", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path file = folder / "tuning.db";
  begin_old_spellings(file);
  const auto database = TuningDatabase::open_for_reading(file);
  REQUIRE(database->unreadable_because().empty());
  require_one_problem(*database);
  CHECK(ask_sql(file, "PRAGMA user_version") == 5);
  TunedConfigs tuned(database, {}, test_build());
  for (const char* asked : {kDecoding, kCausal, kWindow}) {
    AttentionProblem problem = parse_problem(kDecoding);
    if (asked != kDecoding) problem.mask = asked == kCausal ? MaskKind::causal : MaskKind::window;
    if (problem.mask != MaskKind::none) problem.mask_offset = 4095;
    for (const auto& choice :
         {tuned.find(problem, find_device("h200")), tuned.find_exact(problem, find_device("h200"))}) {
      REQUIRE(choice);
      CHECK(choice->origin == ConfigOrigin::exact);
      CHECK(canonical_text(choice->config) == kFast);
    }
  }
}

TEST_CASE("a file that is opened for writing has one spelling of each problem and each time", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path file = folder / "tuning.db";
  begin_old_spellings(file);
  // The same row twice, in both spellings; and one that was changed after it was stored.
  run_sql(
      file,
      "INSERT INTO measurement SELECT 10, 'x', 2, device_id, provenance_id, config, source_hash, status, reason, "
      "rigor, "
      "samples_us, clocks_mhz, median_us, p20_us, p80_us, predicted_us, sm_clock_mhz, error_o, error_lse, registers, "
      "spill_bytes, shared_bytes, compile_ms, created_at, race, place, sequence, wide_samples_us, wide_median_us FROM "
      "measurement WHERE problem_id = 1");
  hash_anew(file);
  const DatabaseContents unmigrated = read_database(file);
  CHECK(unmigrated.rows.size() == 4);
  {
    const TuningDatabase database(file);
    REQUIRE(database.notes().empty());
    require_one_problem(database);
  }
  CHECK(ask_sql(file, "PRAGMA user_version") == schema_version());
  CHECK(ask_sql_text(file, "SELECT group_concat(text, '; ') FROM problem") == kDecoding);
  CHECK(ask_sql(file, "SELECT count(*) FROM measurement") == 3);
  CHECK(ask_sql(file, "SELECT count(*) FROM measurement WHERE created_at = '2025-02-01T12:00:00.000000Z'") == 1);
  for (const DatabaseFinding& finding : examine_database(file).findings) FAIL_CHECK(finding.what);

  // What was read before is what is there now.
  TuningDatabase database(file);
  CHECK(database.append_all(unmigrated.rows).added == 0);
  CHECK(database.append_all(import_measurements(export_measurements(read_database(file).rows), "again")).added == 0);
}

TEST_CASE("what this version cannot read or trust keeps its spelling", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path file = folder / "tuning.db";
  begin_old_spellings(file);
  run_sql(file, fmt::format("UPDATE measurement SET median_us = 1 WHERE config = '{}';"  // its hash no longer fits
                            "UPDATE measurement SET config = 'sm999 warp' WHERE config = '{}'",  // of a later version
                            kFast, kMiddle));
  const TuningDatabase database(file);
  CHECK(ask_sql(file, "PRAGMA user_version") == schema_version());
  CHECK(ask_sql_text(file,
                     "SELECT p.text FROM measurement m JOIN problem p ON p.id = m.problem_id WHERE median_us = 1") ==
        kCausal);
  CHECK(
      ask_sql_text(
          file, "SELECT p.text FROM measurement m JOIN problem p ON p.id = m.problem_id WHERE config = 'sm999 warp'") ==
      kWindow);
  CHECK(canonical_text(database.best(parse_problem(kDecoding), "NVIDIA H200", 132)->config) == kSlow);
}

TEST_CASE("rows are in the order of their times, however they are written", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path file = folder / "tuning.db";
  {
    TuningDatabase database(file);
    for (const int us : {100, 200}) {
      Measurement row = row_of(kSlow, us);
      row.created_at = us == 100 ? "2025-02-01T12:00:00.9Z" : "2025-02-01T12:00:00Z";
      CHECK(database.append_all({row}).added == 1);
      CHECK(database.append_all({row}).known == 1);
    }
    // Stored in one form.
    CHECK(ask_sql_text(file, "SELECT group_concat(created_at) FROM (SELECT * FROM measurement ORDER BY id)") ==
          "2025-02-01T12:00:00.900000Z,2025-02-01T12:00:00.000000Z");
    CHECK(database.best(parse_problem(kDecoding), "NVIDIA H200", 132)->median_us == 100);
  }
  // As earlier versions stored them, and only read.
  run_sql(file, std::string("UPDATE measurement SET created_at = replace(replace(created_at, '.900000Z', '.9Z'), "
                            "'.000000Z', 'Z');") +
                    kToSchema5);
  hash_anew(file);
  const auto database = TuningDatabase::open_for_reading(file);
  CHECK(database->best(parse_problem(kDecoding), "NVIDIA H200", 132)->median_us == 100);
  const auto rows = database->find_all(parse_problem(kDecoding), "NVIDIA H200", 132);
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].median_us == 200);
  CHECK(rows[1].created_at == "2025-02-01T12:00:00.900000Z");
  const DatabaseInfo info = describe_database(file);
  CHECK(info.oldest == "2025-02-01T12:00:00.000000Z");
  CHECK(info.newest == "2025-02-01T12:00:00.900000Z");
}

TEST_CASE("a time that is none is not stored, not merged and not picked", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path file = folder / "tuning.db";
  TuningDatabase database(file);
  Measurement row = row_of(kFast, 100);
  for (const char* time : {"2026-99-99T99:99:99Z", "yesterday"}) {
    row.created_at = time;
    for (const bool foreign : {false, true}) {
      try {
        foreign ? (void)database.append_all({row}) : database.append(row);
        FAIL("stored");
      } catch (const NotStored& error) {
        CHECK(error.fault() == NotStored::Fault::row);
        CHECK_THAT(std::string(error.what()), ContainsSubstring("created_at") && ContainsSubstring(time));
      }
    }
  }
  row = row_of(kFast, 100);
  row.race = "2026-02-30T00:00:00Z";
  row.place = 1;
  CHECK_THROWS_AS(database.append(row), NotStored);
  database.append(row_of(kSlow, 200));
  // As an earlier version took it.
  database.append(row_of(kFast, 100));
  run_sql(file, fmt::format("UPDATE measurement SET created_at = '2026-99-99T99:99:99Z' WHERE config = '{}'", kFast));
  hash_anew(file);
  const auto reading = TuningDatabase::open_for_reading(file);
  CHECK(canonical_text(reading->best(parse_problem(kDecoding), "NVIDIA H200", 132)->config) == kSlow);
  const DatabaseDiagnosis diagnosis = examine_database(file);
  REQUIRE(diagnosis.findings.size() == 1);
  CHECK(diagnosis.findings[0].check == "values");
  CHECK_THAT(diagnosis.findings[0].what, ContainsSubstring("2026-99-99T99:99:99Z"));
  const DatabaseContents contents = read_database(file);
  CHECK(contents.rows.size() == 1);
  CHECK(contents.untimed == 1);
}
