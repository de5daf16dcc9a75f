#include "tuner/database/database_maintenance.h"

#include <fstream>
#include <iterator>

#include "generator/error.h"
#include "tests/catch.h"
#include "tests/tuner/database/database_files.h"
#include "tests/tuner/test_files.h"
#include "tuner/database/database_doctor.h"
#include "tuner/database/database_json.h"
#include "tuner/database/database_pruning.h"
#include "tuner/database/tuning_database.h"

using namespace attune;
using attune::test::ask_sql;
using attune::test::example_measurement;
using attune::test::run_sql;
using attune::test::TemporaryFolder;
namespace fs = std::filesystem;

namespace database_maintenance_test {
namespace {

const std::string kProblem = "forward bf16 b2 hq8 sq1024 d64 causal";
const std::string kA = "sm80 q64 kv64 w4 st2", kB = "sm80 q128 kv64 w4 st2";

Measurement row(const std::string& config, double us, int day, MeasurementStatus status = MeasurementStatus::ok,
                Rigor rigor = Rigor::measure) {
  Measurement m = example_measurement(kProblem, config, us);
  m.status = status;
  m.rigor = rigor;
  m.created_at = "2025-03-" + std::string(day < 10 ? "0" : "") + std::to_string(day) + "T00:00:00.000000Z";
  return m;
}

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

template <typename Action>
std::string complaint_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no complaint";
}

}  // namespace

TEST_CASE("export, import, export is the same text; importing twice adds nothing", "[nogpu]") {
  const TemporaryFolder folder;
  {
    TuningDatabase database(folder / "a.db");
    for (const int day : {7, 3, 5}) {  // not in the order of an export
      database.append(row(kB, 100 + day, day));
      database.append(row(kA, 90 + day, day));
      database.append(example_measurement("forward fp16 b1 hq4 sq77 d128", kA, day));
    }
  }
  const std::string exported = export_measurements(read_database(folder / "a.db").rows);
  const auto rows = import_measurements(exported, "a.json");
  REQUIRE(rows.size() == 9);
  TuningDatabase fresh(folder / "b.db");
  TuningDatabase::Appended appended = fresh.append_all(rows);
  REQUIRE(appended.added == 9);
  REQUIRE(appended.known == 0);
  appended = fresh.append_all(rows);
  REQUIRE(appended.added == 0);
  REQUIRE(appended.known == 9);
  REQUIRE(ask_sql(folder / "b.db", "SELECT count(*) FROM measurement") == 9);
  REQUIRE(export_measurements(read_database(folder / "b.db").rows) == exported);
}

TEST_CASE("rows that cannot all be stored are not stored at all", "[nogpu]") {
  const TemporaryFolder folder;
  TuningDatabase database(folder / "a.db");
  Measurement impossible = row(kB, 100, 2);
  impossible.median_us = std::nan("");  // the column is NOT NULL
  REQUIRE_THAT(complaint_of([&] { database.append_all({row(kA, 90, 1), impossible}); }), ContainsSubstring("a.db"));
  REQUIRE(ask_sql(folder / "a.db", "SELECT count(*) FROM measurement") == 0);
}

TEST_CASE("two databases merge, and age is when a row was measured", "[nogpu]") {
  const TemporaryFolder folder;
  TuningDatabase mine(folder / "mine.db");
  mine.append(row(kA, 100, 10));
  mine.append(row(kB, 90, 10));
  {
    TuningDatabase other(folder / "other.db");
    other.append(row(kA, 20, 5));  // older than mine, though it arrives later
    other.append(row(kB, 90, 10));
    other.append(example_measurement("forward fp16 b1 hq4 sq77 d128"));
  }
  const std::string before = bytes_of(folder / "other.db");
  for (const int expected : {2, 0}) {
    const auto appended = mine.append_all(read_database(folder / "other.db").rows);
    REQUIRE(appended.added == expected);
    REQUIRE(appended.known == 3 - expected);
  }
  REQUIRE(bytes_of(folder / "other.db") == before);
  REQUIRE(mine.list().size() == 2);
  const auto best = mine.best(parse_problem(kProblem), "NVIDIA H200", 132);
  REQUIRE(best);
  REQUIRE(canonical_text(best->config) == kB);
  const auto all = mine.find_all(parse_problem(kProblem), "NVIDIA H200", 132);
  REQUIRE(all.size() == 3);
  REQUIRE(all[0].created_at < all[1].created_at);
  REQUIRE(mine.latest(parse_problem(kProblem), "NVIDIA H200", 132).size() == 2);
}

TEST_CASE("reading a file for export or merge changes nothing and refuses what is no tuning database", "[nogpu]") {
  const TemporaryFolder folder;
  REQUIRE_THAT(complaint_of([&] { read_database(folder / "none.db"); }), ContainsSubstring("none.db"));
  REQUIRE_FALSE(fs::exists(folder / "none.db"));
  std::ofstream(folder / "notes.txt") << std::string(5000, 'x');
  REQUIRE_THAT(complaint_of([&] { read_database(folder / "notes.txt"); }), ContainsSubstring("notes.txt"));
  run_sql(folder / "soup.db", "CREATE TABLE recipes (name TEXT)");
  REQUIRE_THAT(complaint_of([&] { read_database(folder / "soup.db"); }), ContainsSubstring("not a tuning database"));
  TuningDatabase(folder / "changed.db").append_all({row(kA, 90, 1), row(kA, 90, 2)});
  run_sql(folder / "changed.db", "UPDATE measurement SET median_us = 1 WHERE id = 1");
  const DatabaseContents contents = read_database(folder / "changed.db");
  REQUIRE(contents.changed == 1);
  REQUIRE(contents.unreadable == 0);
  REQUIRE(contents.rows.size() == 1);
  REQUIRE(contents.rows[0].created_at.starts_with("2025-03-02"));
  std::size_t files = 0;
  for (const auto& entry : fs::directory_iterator(folder.path()))
    files += entry.path().string().find("corrupt") != std::string::npos;
  REQUIRE(files == 0);
}

TEST_CASE("info counts what is there", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path file = folder / "tuning.db";
  REQUIRE_THAT(complaint_of([&] { describe_database(file); }), ContainsSubstring(file.string()));
  REQUIRE_FALSE(fs::exists(file));
  {
    TuningDatabase database(file);
    database.append(row(kA, 90, 3));
    database.append(row(kB, 90, 1, MeasurementStatus::crashed));
    database.append(row(kB, 90, 2, MeasurementStatus::ok, Rigor::patient));
  }
  DatabaseInfo info = describe_database(file);
  REQUIRE(info.rows == 3);
  REQUIRE(info.problems == 1);
  REQUIRE(info.devices == 1);
  REQUIRE(info.rows_by_status == std::map<std::string, std::int64_t>{{"crashed", 1}, {"ok", 2}});
  REQUIRE(info.rows_by_rigor == std::map<std::string, std::int64_t>{{"measure", 2}, {"patient", 1}});
  REQUIRE(info.oldest.starts_with("2025-03-01"));
  REQUIRE(info.newest.starts_with("2025-03-03"));
  REQUIRE(info.schema == info.known_schema);
  REQUIRE(info.file_bytes == static_cast<std::int64_t>(fs::file_size(file)));
  REQUIRE(info.journal_mode == (info.network_file_system ? "delete" : "wal"));
  REQUIRE_FALSE(info.file_system.empty());
  REQUIRE_FALSE(info.read_only);
  run_sql(file, "PRAGMA user_version = 99");
  info = describe_database(file);
  REQUIRE(info.read_only);
  REQUIRE(info.schema == 99);
  REQUIRE(info.notes.size() == 1);
}

TEST_CASE("vacuum gives space back and loses nothing", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path file = folder / "tuning.db";
  std::vector<Measurement> rows;
  for (int day = 1; day <= 20; ++day) {
    rows.push_back(row(kA, 90, day));
    rows.back().samples_us.assign(2000, 90.0 + day);
    rows.back().clocks_mhz.clear();
    rows.back().summarize();
  }
  TuningDatabase(file).append_all(rows);
  prune_database(file, {1, std::nullopt}, false);
  REQUIRE(describe_database(file).reclaimable_bytes > 100'000);
  const VacuumResult result = vacuum_database(file);
  REQUIRE(result.bytes_after < result.bytes_before - 100'000);
  REQUIRE(describe_database(file).reclaimable_bytes == 0);
  REQUIRE(describe_database(file).rows == 1);
  REQUIRE(examine_database(file).findings.empty());
}

}  // namespace database_maintenance_test
