// Every call of the system's file functions fails once, the first, the second and so on, until a run meets none: what
// was stored stays, what was said to be stored is there, and nothing is taken for damaged.
#include <fmt/format.h>

#include <functional>
#include <set>

#include "generator/error.h"
#include "tests/catch.h"
#include "tests/tuner/database/database_files.h"
#include "tests/tuner/database/faulty_calls.h"
#include "tests/tuner/test_files.h"
#include "tuner/database/database_doctor.h"
#include "tuner/database/database_json.h"
#include "tuner/database/database_maintenance.h"
#include "tuner/database/database_pruning.h"
#include "tuner/database/database_rows.h"
#include "tuner/database/system_database.h"
#include "tuner/database/tuning_database.h"

using namespace attune;
using attune::test::begin_old_file;
using attune::test::example_measurement;
using attune::test::FailingCall;
using attune::test::TemporaryFolder;
namespace fs = std::filesystem;

namespace database_faults_test {
namespace {

constexpr int kRows = 6;

Measurement numbered(int number) {
  Measurement row = example_measurement();
  row.samples_us[0] = number;
  row.created_at = fmt::format("2025-03-01T00:00:{:02}.000000Z", number);
  return row;
}

std::vector<Measurement> rows_from(int first, int count) {
  std::vector<Measurement> rows;
  for (int i = first; i < first + count; ++i) rows.push_back(numbered(i));
  return rows;
}

// What a file holds, as text: the rows as they were given, without the numbers that storing gave them.
std::string held_by(const fs::path& file) {
  std::vector<Measurement> rows = read_database(file).rows;
  for (Measurement& row : rows) row.sequence = 0;
  return export_measurements(rows);
}

// Runs an action on fresh copies of `original`, one call after another failing. `action` throws, or did all it should.
std::set<std::string> fail_each_call(const fs::path& original, const std::string& after,
                                     const std::function<void(const fs::path&)>& action) {
  const std::string before = fs::exists(original) ? held_by(original) : "";
  std::set<std::string> names;
  int number = 1;
  for (bool happened = true; happened; ++number) {
    const TemporaryFolder folder;
    const fs::path file = folder / "tuning.db";
    if (fs::exists(original)) fs::copy_file(original, file);
    bool done = false;
    std::string name, said;
    {
      const FailingCall failing(number);
      try {
        action(file);
        done = true;
      } catch (const Error& error) {
        said = error.what();
      }
      happened = failing.happened();
      name = failing.name();
      names.insert(name);
    }
    INFO("call " << number << ", " << name << "; " << said);
    for (const auto& entry : fs::directory_iterator(folder.path()))
      REQUIRE_THAT(entry.path().filename().string(), !ContainsSubstring("corrupt"));
    if (!fs::exists(file) || fs::file_size(file) == 0) {
      REQUIRE_FALSE(done);
      REQUIRE(before.empty());
      continue;
    }
    const DatabaseDiagnosis diagnosis = examine_database(file);
    for (const DatabaseFinding& finding : diagnosis.findings) {
      INFO(finding.what);
      REQUIRE_THAT(finding.what, ContainsSubstring("older than"));
    }
    const std::string held = held_by(file);
    if (done) {
      REQUIRE(held == after);
    } else {
      REQUIRE((held == after || held == before || (before.empty() && read_database(file).rows.empty())));
      REQUIRE_THAT(said, ContainsSubstring(file.string()));
    }
    if (!happened) REQUIRE(done);
  }
  REQUIRE(number > 10);
  return names;
}

}  // namespace

TEST_CASE("each file call fails once: append, into a fresh file and into one with rows", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path original = folder / "original.db";
  const bool fresh = GENERATE(true, false);
  if (!fresh) TuningDatabase(original).append_all(rows_from(0, kRows));
  const auto append = [](const fs::path& file) { TuningDatabase(file).append(numbered(10)); };
  auto expected = fresh ? std::vector<Measurement>{} : rows_from(0, kRows);
  expected.push_back(numbered(10));
  const std::set<std::string> failed = fail_each_call(original, export_measurements(expected), append);
  for (const char* name : {"open", "pread", "pwrite", "ftruncate", "unlink"}) {
    INFO(name);
    REQUIRE(failed.contains(name));  // SQLite's calls are reached
  }
  REQUIRE((failed.contains("fsync") || failed.contains("fdatasync")));
}

TEST_CASE("each file call fails once: a row that was not stored is stored by the next call", "[nogpu]") {
  bool happened = true;
  for (int number = 1; happened; ++number) {
    const TemporaryFolder folder;
    const fs::path file = folder / "tuning.db";
    TuningDatabase database(file);
    database.append(numbered(0));
    {
      const FailingCall failing(number);
      try {
        database.append(numbered(1));
      } catch (const NotStored& error) {
        REQUIRE(error.fault() == NotStored::Fault::database);
      }
      happened = failing.happened();
    }
    INFO("call " << number);
    database.append(numbered(1));
    database.append(numbered(2));
    REQUIRE(held_by(file) == export_measurements(rows_from(0, 3)));
  }
}

TEST_CASE("each file call fails once: import, merge", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path original = folder / "original.db", other = folder / "other.db";
  TuningDatabase(original).append_all(rows_from(0, kRows));
  TuningDatabase(other).append_all(rows_from(kRows, kRows));
  const std::string exported = export_measurements(rows_from(kRows, kRows));
  const std::string expected = export_measurements(rows_from(0, 2 * kRows));
  fail_each_call(original, expected, [&](const fs::path& file) {
    TuningDatabase(file).append_all(import_measurements(exported, file.string()));
  });
  const std::string unchanged = held_by(other);
  fail_each_call(original, expected, [&](const fs::path& file) {
    std::vector<Measurement> rows;
    try {
      rows = read_database(other).rows;
    } catch (const Error& error) {
      // It names the file that it could not read.
      REQUIRE_THAT(error.what(), ContainsSubstring(other.string()));
      throw Error(ErrorCode::database, file.string());
    }
    TuningDatabase(file).append_all(rows);
  });
  REQUIRE(held_by(other) == unchanged);
}

TEST_CASE("each file call fails once: prune, vacuum", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path original = folder / "original.db";
  TuningDatabase(original).append_all(rows_from(0, kRows));
  fail_each_call(original, export_measurements(rows_from(kRows - 1, 1)), [](const fs::path& file) {
    if (prune_database(file, {1, std::nullopt}, false).kept != 1) throw std::logic_error("kept");
  });
  fail_each_call(original, held_by(original), [](const fs::path& file) { vacuum_database(file); });
}

TEST_CASE("each file call fails once: migration", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path original = folder / "original.db";
  begin_old_file(original, 1);
  std::vector<Measurement> rows = read_database(original).rows;
  fail_each_call(original, export_measurements(rows), [](const fs::path& file) {
    TuningDatabase database(file);
    if (database.read_only()) throw Error(ErrorCode::database, database.notes().back());
  });
}

TEST_CASE("each file call fails once: reading", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path original = folder / "original.db";
  TuningDatabase(original).append_all(rows_from(0, kRows));
  const std::string expected = held_by(original);
  fail_each_call(original, expected, [&](const fs::path& file) {
    const auto database = TuningDatabase::open_for_reading(file);
    if (!database->unreadable_because().empty()) throw Error(ErrorCode::database, database->unreadable_because());
    if (database->find_all(example_measurement().problem, "NVIDIA H200", 132).size() != kRows)
      throw std::logic_error("a row is missing");
  });
}

TEST_CASE("each file call fails once: ship leaves the old database or the new one", "[nogpu]") {
  bool happened = true;
  for (int number = 1; happened; ++number) {
    const TemporaryFolder folder;
    const fs::path file = folder / "system.db";
    write_system_database(file, rows_from(0, 2));
    bool done = false;
    {
      const FailingCall failing(number);
      try {
        write_system_database(file, rows_from(0, kRows));
        done = true;
      } catch (const Error& error) {
        REQUIRE_THAT(error.what(), ContainsSubstring(file.string()));
      }
      happened = failing.happened();
    }
    INFO("call " << number);
    const std::string held = held_by(file);
    if (done) {
      REQUIRE(held == export_measurements(rows_from(0, kRows)));
    } else {
      REQUIRE((held == export_measurements(rows_from(0, kRows)) || held == export_measurements(rows_from(0, 2))));
    }
    REQUIRE(examine_database(file).findings.empty());
  }
}

}  // namespace database_faults_test
