#include "tuner/database/database_doctor.h"

#include <fstream>
#include <iterator>

#include "tests/catch.h"
#include "tests/tuner/database/database_files.h"
#include "tests/tuner/test_files.h"
#include "tuner/database/database_maintenance.h"
#include "tuner/database/database_rows.h"
#include "tuner/database/sqlite.h"
#include "tuner/database/tuning_database.h"

using namespace attune;
using attune::test::example_measurement;
using attune::test::run_sql;
using attune::test::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

fs::path healthy_file(const TemporaryFolder& folder) {
  TuningDatabase database(folder / "tuning.db");
  for (int i = 0; i < 3; ++i) {
    Measurement row = example_measurement();
    row.samples_us[0] = i;
    database.append(row);
  }
  Measurement failed = example_measurement("forward fp16 b1 hq4 sq77 d128 scale0.3");
  failed.status = MeasurementStatus::wrong_result;
  failed.error_o = std::nan("");
  database.append(failed);
  return folder / "tuning.db";
}

}  // namespace

TEST_CASE("the doctor finds nothing wrong with a healthy file and does not touch it", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path file = healthy_file(folder);
  const auto written = fs::last_write_time(file);
  const DatabaseDiagnosis diagnosis = examine_database(file);
  for (const DatabaseFinding& finding : diagnosis.findings) INFO(finding.what);
  REQUIRE(diagnosis.findings.empty());
  REQUIRE(diagnosis.rows == 4);
  REQUIRE(diagnosis.unreadable == 0);
  REQUIRE(fs::last_write_time(file) == written);
}

TEST_CASE("the doctor names what is wrong and what to do", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path file = healthy_file(folder);
  struct Harm {
    std::string sql, check, what;
  };
  const Harm harm =
      GENERATE(Harm{"UPDATE measurement SET median_us = 1 WHERE id = 2", "content_hash", "measurement 2"},
               Harm{"UPDATE measurement SET config = 'sm999 nonsense' WHERE id = 2", "content_hash", "sm999"},
               Harm{"UPDATE measurement SET status = 'ok' WHERE id = 4", "content_hash", "measurement 4"},
               Harm{"UPDATE measurement SET samples_us = x'00' WHERE id = 1", "content_hash", "measurement 1"},
               Harm{"UPDATE measurement SET rigor = 3 WHERE id = 1", "content_hash", "measurement 1"},
               Harm{"UPDATE provenance SET driver = '12.0'", "content_hash", "measurement 1"},
               Harm{"UPDATE problem SET seq_q = 5 WHERE id = 1", "problem", "problem 1"},
               Harm{"DELETE FROM problem WHERE id = 2", "foreign_keys", "problem"},
               Harm{"DELETE FROM measurement WHERE id = 4", "orphans", "row 2 of problem"},
               Harm{"DROP INDEX measurement_by_question", "schema", "measurement_by_question is missing"},
               Harm{"ALTER TABLE measurement ADD COLUMN novelty TEXT", "schema", "table measurement"},
               Harm{"UPDATE measurement SET place = 1 WHERE id = 1", "content_hash", "measurement 1"},
               Harm{"CREATE TABLE recipes (name TEXT)", "schema", "recipes"},
               Harm{"PRAGMA user_version = 99", "schema", "newer"},
               Harm{"PRAGMA application_id = 7", "schema", "another program"});
  run_sql(file, harm.sql);
  const DatabaseDiagnosis diagnosis = examine_database(file);
  INFO(harm.sql);
  REQUIRE_FALSE(diagnosis.findings.empty());
  REQUIRE(diagnosis.findings[0].check == harm.check);
  REQUIRE_THAT(diagnosis.findings[0].what, ContainsSubstring(harm.what));
  REQUIRE_FALSE(diagnosis.findings[0].advice.empty());
}

TEST_CASE("the doctor knows what a race is", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path file = folder / "tuning.db";
  TuningDatabase database(file);
  const auto add = [&](const std::string& config, const std::string& race, int place) {
    Measurement row = example_measurement("forward bf16 b2 hq8 sq1024 d64 causal", config);
    row.race = race;
    row.place = place;
    database.append(row);
  };
  const std::string race = "2025-01-31T12:00:00.000000Z";
  add("sm80 q128 kv64 w4 st2", race, 1);
  add("sm80 q64 kv64 w4 st2", race, 2);
  add("sm80 q128 kv64 w4 st2", "2025-02-01T12:00:00.000000Z", 1);
  REQUIRE(examine_database(file).findings.empty());
  SECTION("two share a place") {
    add("sm80 q64 kv128 w4 st2", race, 2);
    const auto findings = examine_database(file).findings;
    REQUIRE(findings.size() == 1);
    REQUIRE(findings[0].check == "race");
    REQUIRE_THAT(findings[0].what, ContainsSubstring("2 measurements (2 to 4)") && ContainsSubstring(race));
  }
  SECTION("a place in no race") {
    add("sm80 q64 kv128 w4 st2", "", 1);
    const auto findings = examine_database(file).findings;
    REQUIRE(findings.size() == 1);
    REQUIRE(findings[0].check == "values");
    REQUIRE_THAT(findings[0].what, ContainsSubstring("place 1 in the race \"\""));
  }
  SECTION("a race without a place") {
    add("sm80 q64 kv128 w4 st2", race, 0);
    const auto findings = examine_database(file).findings;
    REQUIRE(findings.size() == 1);
    REQUIRE(findings[0].check == "values");
    REQUIRE_THAT(findings[0].what, ContainsSubstring("place 0 in the race \"" + race));
  }
}

TEST_CASE("a row of a newer Attune is not wrong by itself, and not exported by this one", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path file = healthy_file(folder);
  std::string hash;
  run_sql(file, "UPDATE measurement SET status = 'evaporated' WHERE id = 1");
  {
    sqlite::Connection db(file.string(), SQLITE_OPEN_READONLY);
    sqlite::Statement query(db, std::string("SELECT") + kRowColumns + "FROM" + kRowTables + "WHERE m.id = 1");
    REQUIRE(query.step());
    hash = stored_content_hash(query);
  }
  run_sql(file, "UPDATE measurement SET content_hash = '" + hash + "' WHERE id = 1");
  const DatabaseDiagnosis diagnosis = examine_database(file);
  REQUIRE(diagnosis.findings.empty());
  REQUIRE(diagnosis.rows == 4);
  REQUIRE(diagnosis.unreadable == 1);
  const DatabaseContents contents = read_database(file);
  REQUIRE(contents.rows.size() == 3);
  REQUIRE(contents.unreadable == 1);
  REQUIRE(contents.changed == 0);
}

TEST_CASE("a damaged file stays where it is", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path file = folder / "tuning.db";
  REQUIRE(examine_database(file).findings.at(0).check == "file");
  REQUIRE_FALSE(fs::exists(file));
  std::string bytes, advice = "export";
  SECTION("text") {
    bytes = std::string(9000, '?');
    advice = "name another file";  // there is nothing to save
  }
  SECTION("pages") {
    {
      TuningDatabase database(file);
      for (int i = 0; i < 50; ++i) {
        Measurement row = example_measurement();
        row.samples_us[0] = i;
        database.append(row);
      }
    }
    std::ifstream input(file, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(input), {});
    REQUIRE(bytes.size() > 20000);
    for (std::size_t i = 4096; i < 12288; ++i) bytes[i] = static_cast<char>(i * 37);
  }
  std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
  const DatabaseDiagnosis diagnosis = examine_database(file);
  REQUIRE_FALSE(diagnosis.findings.empty());
  REQUIRE_THAT(diagnosis.findings[0].advice, ContainsSubstring(advice));
  std::ifstream input(file, std::ios::binary);
  REQUIRE(std::string(std::istreambuf_iterator<char>(input), {}) == bytes);
}

// A cell of a table's leaf page begins with the length of its row.
TEST_CASE("a row that claims to be longer than any memory is damage, not a lack of memory", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path file = healthy_file(folder);
  // In small pages a row of any length passes for one that goes on in others.
  run_sql(file, "PRAGMA journal_mode = DELETE; PRAGMA page_size = 512; VACUUM");
  std::ifstream in(file, std::ios::binary);
  const std::string healthy(std::istreambuf_iterator<char>(in), {});
  const auto number = [&](std::size_t at) {
    return static_cast<std::size_t>(static_cast<unsigned char>(healthy[at])) << 8 |
           static_cast<unsigned char>(healthy[at + 1]);
  };
  const std::size_t page_bytes = number(16);
  REQUIRE(page_bytes == 512);
  int damaged = 0;
  for (std::size_t page = page_bytes; page + page_bytes <= healthy.size(); page += page_bytes) {
    constexpr char kTableLeaf = 0x0d;
    if (healthy[page] != kTableLeaf || number(page + 3) == 0) continue;
    std::string bytes = healthy;
    const std::size_t last_cell = page + number(page + 6 + 2 * number(page + 3));  // so that others follow it
    bytes.replace(last_cell, 9, 9, '\xff');
    std::ofstream(file, std::ios::binary) << bytes;
    const DatabaseDiagnosis diagnosis = examine_database(file);
    INFO("page at byte " << page);
    REQUIRE_FALSE(diagnosis.findings.empty());
    REQUIRE_THAT(diagnosis.findings[0].advice, ContainsSubstring("db export"));
    ++damaged;
  }
  REQUIRE(damaged > 0);
}
