#include "tuner/database/database_schema.h"

#include <fmt/format.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "generator/error.h"
#include "tests/catch.h"
#include "tests/tuner/database/database_files.h"
#include "tests/tuner/test_files.h"
#include "tuner/database/database_doctor.h"
#include "tuner/database/database_maintenance.h"
#include "tuner/database/database_rows.h"
#include "tuner/database/tuning_database.h"

using namespace attune;
using attune::test::ask_sql;
using attune::test::ask_sql_text;
using attune::test::begin_old_file;
using attune::test::require_equal;
using attune::test::run_sql;
using attune::test::TemporaryFolder;
namespace fs = std::filesystem;

namespace database_schema_test {
namespace {

// What schemas/v1.sql to v7.sql hold.
constexpr const char* kProblem = "forward bf16 b2 hq8 sq1024 d64 causal";
constexpr const char* kDevice = "NVIDIA H200";
constexpr int kSms = 132;
constexpr const char* kHashes = "SELECT group_concat(content_hash, ' ') FROM (SELECT * FROM measurement ORDER BY id)";
constexpr const char* kAddedColumns =
    "SELECT count(*) FROM (SELECT name FROM pragma_table_info('measurement') UNION SELECT name FROM "
    "pragma_table_info('problem')) WHERE name IN ('race', 'place', 'sequence', 'source_hash', 'wide_samples_us', "
    "'wide_median_us', 'features', 'host', 'gpu_uuid', 'driver_build', 'power_limit_w', 'sm_clock_limit_mhz', "
    "'memory_clock_mhz')";
constexpr std::int64_t kAddedByVersion[] = {0, 0, 2, 3, 4, 6, 6, 7, 13};

struct OldSchema {
  int version;
  int rows, rows_of_problem, raced;
  const char* best;
};
constexpr OldSchema kFirst = {1, 5, 4, 0, "sm80 q128 kv128 w8 st2"}, kSecond = {2, 7, 6, 2, "sm80 q64 kv64 w4 st2"},
                    kThird = {3, 10, 9, 2, "sm80 q64 kv64 w4 st2"}, kFourth = {4, 12, 11, 4, "sm90 q128 kv64 st3"},
                    kSeventh = {7, 12, 11, 4, "sm90 q128 kv64 st3"};
constexpr const char* kTemplates =
    "SELECT group_concat(v.templates_hash, ' ') FROM (SELECT * FROM measurement ORDER BY id) m "
    "JOIN provenance v ON v.id = m.provenance_id";
constexpr const char* kSources =
    "SELECT group_concat(replace(source_hash, 'templates:', ''), ' ') FROM (SELECT * FROM measurement ORDER BY id)";

std::string best_of(const TuningDatabase& database) {
  const auto row = database.best(parse_problem(kProblem), kDevice, kSms);
  return row ? canonical_text(row->config) : "nothing";
}

// Migrates in a child that ends itself, as kill -9 would, after so many steps of SQLite's machine or before a commit.
// Whether it was killed.
bool migrate_until(const fs::path& file, int steps, bool before_commit) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    static int left = steps;
    sqlite::Connection connection(file.string(), SQLITE_OPEN_READWRITE);
    const auto die = [](void*) { return ::kill(::getpid(), SIGKILL); };
    if (before_commit) {
      sqlite3_commit_hook(connection.handle(), die, nullptr);
    } else {
      sqlite3_progress_handler(
          connection.handle(), 1, [](void*) { return --left > 0 ? 0 : ::kill(::getpid(), SIGKILL); }, nullptr);
    }
    migrate(connection);
    ::_exit(0);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  if (!WIFSIGNALED(status)) REQUIRE(status == 0);
  return WIFSIGNALED(status);
}

}  // namespace

TEST_CASE("a file of an older schema is migrated: nothing is lost, and the answers are the same", "[nogpu]") {
  const OldSchema old = GENERATE(kFirst, kSecond, kThird, kFourth, kSeventh);
  INFO("schema " << old.version);
  const TemporaryFolder folder;
  const fs::path file = folder / "tuning.db";
  begin_old_file(file, old.version);
  REQUIRE(ask_sql(file, kAddedColumns) == kAddedByVersion[old.version]);
  const std::string hashes = ask_sql_text(file, kHashes),
                    sources = ask_sql_text(file, old.version < 4 ? kTemplates : kSources);
  {
    TuningDatabase database(file);
    REQUIRE(database.notes().empty());
    REQUIRE_FALSE(database.read_only());
    REQUIRE(best_of(database) == old.best);
    int raced = 0;
    for (const Measurement& row : database.find_all(parse_problem(kProblem), kDevice, kSms)) {
      REQUIRE(row.race.empty() == (row.place == 0));
      raced += row.place > 0;
      REQUIRE((row.sequence > 0) == (row.attune_version == "0.1.0" && row.created_at >= "2025-02-02"));
      const bool of_templates = row.created_at < "2025-03";
      REQUIRE(row.source_hash.starts_with(kTemplatesMark) == of_templates);
      REQUIRE(row.source_hash.size() == (of_templates ? kTemplatesMark.size() : 0) + 16);
      REQUIRE(row.wide_samples_us.empty());
      REQUIRE(row.wide_median_us == 0);
      REQUIRE_FALSE(row.node.is_known());
    }
    REQUIRE(raced == old.raced);
    REQUIRE(database.list().size() == 2);
  }
  REQUIRE(ask_sql(file, "PRAGMA user_version") == schema_version());
  REQUIRE(ask_sql(file, kAddedColumns) == kAddedByVersion[schema_version()]);
  REQUIRE(ask_sql_text(file, kHashes) == hashes);
  REQUIRE(ask_sql_text(file, kSources) == sources);
  REQUIRE(ask_sql(file, "SELECT count(*) FROM measurement WHERE source_hash LIKE 'templates:%'") ==
          (old.version < 4 ? old.rows : kThird.rows));
  // What differed in the hash alone is one provenance now.
  REQUIRE(ask_sql(file, "SELECT count(*) FROM provenance") == (old.version == 1 ? 2 : old.version < 4 ? 3 : 4));
  const DatabaseDiagnosis diagnosis = examine_database(file);
  for (const DatabaseFinding& finding : diagnosis.findings) INFO(finding.what);
  REQUIRE(diagnosis.findings.empty());
  REQUIRE(diagnosis.rows == old.rows);

  // The same rows in a fresh file have the same hashes: merging old and new files stays idempotent.
  const DatabaseContents contents = read_database(file);
  REQUIRE(static_cast<int>(contents.rows.size()) == old.rows);
  for (const Measurement& row : contents.rows) REQUIRE_THAT(hashes, ContainsSubstring(content_hash(row)));
  TuningDatabase fresh(folder / "fresh.db");
  REQUIRE(fresh.append_all(contents.rows).added == old.rows);
  TuningDatabase database(file);
  REQUIRE(database.append_all(read_database(folder / "fresh.db").rows).known == old.rows);
  REQUIRE(examine_database(folder / "fresh.db").findings.empty());
}

TEST_CASE("configs of older files are respelled: the rows stay one with those that are imported", "[nogpu]") {
  struct OldWords {
    int version;
    const char *sm90, *sm80;
  };
  const OldWords old = GENERATE(OldWords{3, "order=heads nomax turns persist=fixed", "order=rows-reversed whole"},
                                OldWords{4, "order=tile-major lazy-max ordered scheduler=static-persistent",
                                         "order=head-major-reversed even-tiles rescale0"});
  INFO("version " << old.version);
  const int rows = old.version == 3 ? kThird.rows : kFourth.rows;
  const TemporaryFolder folder;
  const fs::path file = folder / "tuning.db";
  begin_old_file(file, old.version);
  // As they were written: the words of that time, and the hash over them. The last row is damaged, and stays so.
  run_sql(file, fmt::format("UPDATE measurement SET config = 'sm90 q128 kv64 st2 {}' WHERE id <= 2;"
                            "UPDATE measurement SET config = 'sm80 q64 kv64 w4 st2 {}' WHERE id >= 9",
                            old.sm90, old.sm80));
  {
    sqlite::Connection connection(file.string(), SQLITE_OPEN_READWRITE);
    read_as_newest(connection, old.version);
    std::vector<std::pair<std::int64_t, std::string>> hashes;
    {
      sqlite::Statement rows(connection, fmt::format("SELECT {}, m.id FROM {}", kRowColumns, kRowTables));
      while (rows.step()) hashes.emplace_back(rows.integer(kRowColumnCount), stored_content_hash(rows));
    }
    for (const auto& [id, hash] : hashes) {
      if (id == 10) continue;
      sqlite::Statement(connection, "UPDATE main.measurement SET content_hash = ? WHERE id = ?")
          .bind(hash)
          .bind(id)
          .step();
    }
  }
  const DatabaseContents unmigrated = read_database(file);
  {
    TuningDatabase database(file);
    REQUIRE(database.notes().empty());
  }
  REQUIRE(ask_sql_text(file, "SELECT group_concat(DISTINCT config) FROM measurement WHERE id <= 2") ==
          "sm90 q128 kv64 st2 order=tile-major rescale8 ordered scheduler=static-persistent");
  REQUIRE(ask_sql_text(file, "SELECT config FROM measurement WHERE id = 9") ==
          "sm80 q64 kv64 w4 st2 order=head-major-reversed even-tiles");
  REQUIRE(ask_sql_text(file, "SELECT config FROM measurement WHERE id = 10") ==
          fmt::format("sm80 q64 kv64 w4 st2 {}", old.sm80));
  const DatabaseDiagnosis diagnosis = examine_database(file);
  REQUIRE(diagnosis.rows == rows);
  REQUIRE(diagnosis.findings.size() == 1);  // the damaged row
  REQUIRE(diagnosis.findings.front().check == "content_hash");
  TuningDatabase database(file);
  const auto appended = database.append_all(unmigrated.rows);
  REQUIRE(appended.added <= 1);  // at most the damaged one
  REQUIRE(appended.known >= rows - 1);
}

TEST_CASE("a file of an older schema is read without being migrated: for export and merge, and where it cannot be",
          "[nogpu]") {
  const OldSchema old = GENERATE(kFirst, kSecond, kThird, kFourth, kSeventh);
  INFO("schema " << old.version);
  const TemporaryFolder folder;
  ::chmod(folder.path().c_str(), 0755);
  const fs::path file = folder / "old.db";
  begin_old_file(file, old.version);
  const DatabaseContents contents = read_database(file);
  REQUIRE(static_cast<int>(contents.rows.size()) == old.rows);
  REQUIRE(contents.changed == 0);
  REQUIRE(contents.unreadable == 0);
  REQUIRE(ask_sql(file, "PRAGMA user_version") == old.version);

  TuningDatabase migrated(folder / "tuning.db");
  REQUIRE(migrated.append_all(contents.rows).added == old.rows);

  ::chmod(file.c_str(), 0444);
  ::chmod(folder.path().c_str(), 0555);
  {
    // Permission bits say nothing to root.
    const int user = ::setfsuid(65534);
    TuningDatabase database(file);
    REQUIRE(database.read_only());
    REQUIRE(best_of(database) == old.best);
    const auto rows = database.find_all(parse_problem(kProblem), kDevice, kSms);
    ::setfsuid(static_cast<uid_t>(user));
    REQUIRE(static_cast<int>(rows.size()) == old.rows_of_problem);
    const auto expected = migrated.find_all(parse_problem(kProblem), kDevice, kSms);
    for (std::size_t i = 0; i < rows.size(); ++i) require_equal(rows[i], expected[i]);
    REQUIRE(database.near(parse_problem(kProblem), kSms).size() == 1);
  }
  ::chmod(folder.path().c_str(), 0755);
  REQUIRE(ask_sql(file, "PRAGMA user_version") == old.version);
}

TEST_CASE("what can be read of a damaged file of an older schema keeps its hash of templates or source", "[nogpu]") {
  const OldSchema old = GENERATE(kFirst, kSecond, kThird, kFourth, kSeventh);
  INFO("schema " << old.version);
  const TemporaryFolder folder;
  const fs::path file = folder / "old.db";
  begin_old_file(file, old.version);
  const std::int64_t page = ask_sql(file, "SELECT rootpage FROM sqlite_schema WHERE name = 'provenance'"),
                     bytes = ask_sql(file, "PRAGMA page_size");
  const std::vector<Measurement> sound = read_database(file).rows;
  {
    std::fstream harmed(file, std::ios::binary | std::ios::in | std::ios::out);
    harmed.seekp((page - 1) * bytes);
    harmed << std::string(static_cast<std::size_t>(bytes), 'x');
  }
  // The table's own page is lost, its index is not.
  const DatabaseContents contents = read_database(file, Damage::salvage);
  REQUIRE_FALSE(contents.damage.empty());
  REQUIRE(static_cast<int>(contents.rows.size()) == old.rows);
  for (std::size_t i = 0; i < sound.size(); ++i) require_equal(contents.rows[i], sound[i]);
}

namespace {

// Kills a migration after 1, 1 + `stride`, 1 + 2 `stride` ... steps of SQLite.
void kill_migrations(const std::string& journal, int stride) {
  const TemporaryFolder folder;
  const fs::path old = folder / "old.db", file = folder / "tuning.db";
  begin_old_file(old, 1);
  run_sql(old, "PRAGMA journal_mode = " + journal);
  const std::string hashes = ask_sql_text(old, kHashes);
  const auto copy_of_old = [&] {
    for (const char* suffix : {"", "-wal", "-shm", "-journal"}) fs::remove(file.string() + suffix);
    fs::copy_file(old, file);
  };
  const auto version_left = [&] {
    const std::int64_t version = ask_sql(file, "PRAGMA user_version");
    REQUIRE(ask_sql(file, kAddedColumns) == kAddedByVersion[version]);
    REQUIRE(ask_sql_text(file, "PRAGMA integrity_check") == "ok");
    REQUIRE(ask_sql_text(file, kHashes) == hashes);
    return version;
  };
  int killed = 0;
  for (int steps = 1;; steps += stride) {
    copy_of_old();
    const bool ended = !migrate_until(file, steps, false);
    const std::int64_t version = version_left();
    if (ended) {
      REQUIRE(version == schema_version());
      break;
    }
    ++killed;
  }
  REQUIRE(killed > 20);
  copy_of_old();
  REQUIRE(migrate_until(file, 0, true));
  REQUIRE(version_left() == 1);
  // What was left is migrated by the next that comes.
  REQUIRE(best_of(TuningDatabase(file)) == kFirst.best);
  REQUIRE(version_left() == schema_version());
}

}  // namespace

TEST_CASE("a migration that is killed leaves the old schema or the new one, never something between", "[nogpu]") {
  kill_migrations(GENERATE("WAL", "DELETE"), 23);
}

TEST_CASE("a migration that is killed at any time leaves the old schema or the new one", "[nogpu][slow]") {
  kill_migrations(GENERATE("WAL", "DELETE"), 5);
}

}  // namespace database_schema_test
