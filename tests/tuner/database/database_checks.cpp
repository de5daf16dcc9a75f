#include "tuner/database/database_checks.h"

#include <filesystem>
#include <memory>
#include <string>

#include "tests/catch.h"
#include "tests/tuner/database/database_files.h"
#include "tests/tuner/test_files.h"
#include "tuner/database/database_doctor.h"
#include "tuner/database/database_maintenance.h"
#include "tuner/database/tuning_database.h"

using namespace attune;
using attune::test::bytes_of;
using attune::test::run_sql;
using attune::test::TemporaryFolder;
using attune::test::write_rows;
namespace fs = std::filesystem;

TEST_CASE("a schema that is not Attune's is refused: for reading, writing, merging", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path file = folder / "tuning.db", mine = folder / "mine.db";
  write_rows(file, 3);
  struct Harm {
    std::string sql, what;
  };
  const Harm harm = GENERATE(
      Harm{"CREATE TRIGGER spy AFTER INSERT ON measurement BEGIN DELETE FROM measurement; END", "trigger spy"},
      Harm{"CREATE VIEW slow AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT i FROM n",
           "view slow"},
      Harm{"CREATE INDEX mine ON measurement (status)", "index mine"},
      Harm{"CREATE TABLE recipes (name TEXT)", "table recipes"},
      Harm{"CREATE VIRTUAL TABLE v USING fts5(text)", "table v"},
      Harm{"DROP INDEX measurement_by_question", "measurement_by_question is missing"},
      Harm{"PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = replace(sql, ' STRICT', '') WHERE name = "
           "'problem'",
           "table problem"},
      Harm{"DROP TABLE problem; CREATE VIEW problem AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) "
           "SELECT i AS id, 'x' AS text FROM n",
           "problem"},
      Harm{"PRAGMA user_version = -1", "schema number -1"}, Harm{"PRAGMA user_version = -2147483648", "schema number"},
      Harm{"PRAGMA user_version = 2147483647", "schema number"}, Harm{"PRAGMA user_version = 0", "schema number 0"},
      Harm{"PRAGMA user_version = 1", "schema number 1"});
  run_sql(file, harm.sql);
  INFO(harm.sql);
  const std::string bytes = bytes_of(file);
  for (const bool writes : {false, true}) {
    const auto database = writes ? std::make_shared<TuningDatabase>(file) : TuningDatabase::open_for_reading(file);
    CHECK(database->read_only());
    REQUIRE(database->notes().size() == 1);
    CHECK_THAT(database->notes()[0], ContainsSubstring(harm.what) && ContainsSubstring("db doctor"));
    CHECK(database->list().empty());
  }
  CHECK_THROWS_WITH(read_database(file), ContainsSubstring(harm.what));
  CHECK_THROWS_WITH(describe_database(file), ContainsSubstring(harm.what));
  CHECK_THROWS_WITH(vacuum_database(file), ContainsSubstring(harm.what));
  REQUIRE_FALSE(examine_database(file).findings.empty());
  CHECK_THAT(examine_database(file).findings[0].what, ContainsSubstring(harm.what));
  CHECK(bytes_of(file) == bytes);
  if (harm.what != "problem") CHECK(read_database(file, Damage::salvage).rows.size() == 3);
}

TEST_CASE("what SQLite's ANALYZE leaves is no difference", "[nogpu]") {
  const TemporaryFolder folder;
  write_rows(folder / "tuning.db", 3);
  run_sql(folder / "tuning.db", "ANALYZE");
  REQUIRE(TuningDatabase::open_for_reading(folder / "tuning.db")->list().at(0).rows == 3);
  REQUIRE(examine_database(folder / "tuning.db").findings.empty());
}

TEST_CASE("a newer file whose tables are views is not read", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path file = folder / "tuning.db";
  write_rows(file, 3);
  run_sql(file,
          "ALTER TABLE measurement RENAME TO hidden; CREATE VIEW measurement AS SELECT * FROM hidden; "
          "PRAGMA user_version = 99");
  REQUIRE_THAT(TuningDatabase::open_for_reading(file)->unreadable_because(), ContainsSubstring("measurement"));
  REQUIRE_THROWS_WITH(read_database(file), ContainsSubstring("measurement"));
}
