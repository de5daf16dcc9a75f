#include "tuner/database/database_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <random>
#include <set>

#include "attune/log.h"
#include "generator/error.h"
#include "tests/catch.h"
#include "tests/tuner/database/database_files.h"
#include "tests/tuner/test_files.h"
#include "tuner/database/database_doctor.h"
#include "tuner/database/database_maintenance.h"
#include "tuner/database/database_rows.h"
#include "tuner/database/tuned_configs.h"
#include "tuner/database/tuning_database.h"

using namespace attune;
using attune::test::ask_sql;
using attune::test::begin_old_file;
using attune::test::bytes_of;
using attune::test::example_measurement;
using attune::test::run_sql;
using attune::test::TemporaryFolder;
using attune::test::write_damaged_database;
namespace fs = std::filesystem;

namespace {

constexpr const char* kDevice = "NVIDIA H200";
constexpr int kSms = 132;

Measurement numbered(int number) {
  Measurement row = example_measurement();
  row.samples_us[0] = number;
  return row;
}

void write_rows(const fs::path& path, int count) {
  TuningDatabase database(path);
  for (int i = 0; i < count; ++i) database.append(numbered(i));
}

// Everything that can be seen of a folder: names, kinds, bytes and times.
std::map<std::string, std::string> look_at(const fs::path& folder) {
  std::map<std::string, std::string> seen;
  const auto note = [&](const fs::path& path) {
    struct stat facts {};
    REQUIRE(::lstat(path.c_str(), &facts) == 0);
    seen[path.string()] =
        fmt::format("inode {} mode {:o} size {} at {}.{:09}, {}", facts.st_ino, facts.st_mode, facts.st_size,
                    facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec, S_ISREG(facts.st_mode) ? bytes_of(path) : "");
  };
  note(folder);
  for (const auto& entry : fs::recursive_directory_iterator(folder)) note(entry.path());
  return seen;
}

// Every way to read a file; none may throw anything but Error. What they said, and how many rows the database showed.
struct Read {
  std::string said;
  std::size_t rows = 0;
};
Read read_in_every_way(const fs::path& path) {
  Read read;
  const auto attempt = [&](auto ask) {
    try {
      ask();
    } catch (const Error& error) {
      read.said += std::string(error.what()) + "\n";
    }
  };
  const AttentionProblem problem = example_measurement().problem;
  const auto database = TuningDatabase::open_for_reading(path);
  for (const std::string& note : database->notes()) read.said += note + "\n";
  attempt([&] { database->list(); });
  attempt([&] { read.rows = database->find_all(problem, kDevice, kSms).size(); });
  attempt([&] { database->latest(problem, kDevice, kSms); });
  attempt([&] { database->best(problem, kDevice, kSms); });
  attempt([&] { database->near(problem, kSms); });
  attempt([&] { database->winners_of_neighbours(problem, kDevice, kSms, 3); });
  attempt([&] { read_database(path); });
  attempt([&] { read_database(path, Damage::salvage); });
  attempt([&] { describe_database(path); });
  for (const DatabaseFinding& finding : examine_database(path).findings) read.said += finding.what + "\n";
  return read;
}

// A process that has stored rows and is then killed, or waits: its log is not merged.
pid_t store_in_child(const fs::path& path, int rows, bool kill) {
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    try {
      TuningDatabase database(path);
      for (int i = 0; i < rows; ++i) database.append(numbered(i));
      if (::write(ready[1], "x", 1) != 1) ::_exit(2);
      for (;;) ::pause();
    } catch (...) {
    }
    ::_exit(1);
  }
  char byte = 0;
  REQUIRE(::read(ready[0], &byte, 1) == 1);
  ::close(ready[0]);
  ::close(ready[1]);
  if (kill) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
  return child;
}

void end(pid_t child) {
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

std::string failure_of(TuningDatabase& database) {
  try {
    database.append(example_measurement());
  } catch (const NotStored& error) {
    REQUIRE(error.fault() == NotStored::Fault::database);
    return error.what();
  }
  return {};
}

}  // namespace

TEST_CASE("reading creates, renames and changes nothing, whatever is there", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path file = folder / "tuning.db";
  std::string expected;  // in what is said; empty: nothing is wrong
  std::size_t rows = 0;
  pid_t child = 0;
  SECTION("a database") {
    write_rows(file, 3);
    rows = 3;
  }
  SECTION("a database with a rollback journal") {
    write_rows(file, 3);
    run_sql(file, "PRAGMA journal_mode = DELETE");
    rows = 3;
  }
  SECTION("one that another process writes to") {
    child = store_in_child(file, 3, false);
    REQUIRE(fs::file_size(file.string() + "-wal") > 0);
    rows = 3;
  }
  SECTION("one whose writer was killed") {
    store_in_child(file, 3, true);
    rows = 3;
    SECTION("with the index of its log") { REQUIRE(fs::exists(file.string() + "-shm")); }
    SECTION("without it") { fs::remove(file.string() + "-shm"); }
  }
  SECTION("of an older schema") {
    begin_old_file(file, 1);
    rows = 4;
    expected = "older than";
  }
  SECTION("of a newer schema") {
    write_rows(file, 3);
    run_sql(file, "PRAGMA user_version = 99");
    rows = 3;
    expected = "newer";
  }
  SECTION("a damaged one") {
    write_damaged_database(file);
    expected = "corrupt";
  }
  SECTION("text") {
    std::ofstream(file) << std::string(9000, 'x');
    expected = "not a tuning database";
  }
  SECTION("an empty file") { std::ofstream(file).flush(); }
  SECTION("nothing") { expected = "no such database"; }
  SECTION("another program's database") {
    run_sql(file, "PRAGMA journal_mode = WAL; CREATE TABLE recipes (name TEXT)");
    expected = "another program";
  }
  SECTION("a folder") {
    fs::create_directory(file);
    expected = "a folder";
  }
  SECTION("a pipe") {
    REQUIRE(::mkfifo(file.c_str(), 0600) == 0);
    expected = "no regular file";
  }
  SECTION("a link to text") {
    std::ofstream(folder / "notes.txt") << std::string(9000, 'x');
    fs::create_symlink(folder / "notes.txt", file);
    expected = "not a tuning database";
  }
  SECTION("a link to a database") {
    write_rows(folder / "there.db", 3);
    fs::create_symlink(folder / "there.db", file);
    rows = 3;
  }
  const auto before = look_at(folder.path());
  const Read read = read_in_every_way(file);
  CHECK(look_at(folder.path()) == before);
  if (child != 0) end(child);
  INFO(read.said);
  CHECK(read.rows == rows);
  if (expected.empty()) {
    CHECK(read.said.empty());
  } else {
    CHECK_THAT(read.said, ContainsSubstring(expected));
  }
}

TEST_CASE("a file that this user may not open is said to be so, and left alone", "[nogpu]") {
  const TemporaryFolder folder;
  ::chmod(folder.path().c_str(), 0755);
  const fs::path file = folder / "tuning.db";
  write_rows(file, 3);
  ::chmod(file.c_str(), 0);
  const auto before = look_at(folder.path());
  Read read;
  std::string refused;
  {
    const int user = ::setfsuid(65534);  // permission bits say nothing to root
    read = read_in_every_way(file);
    TuningDatabase database(file);
    refused = failure_of(database);
    ::setfsuid(static_cast<uid_t>(user));
  }
  ::chmod(file.c_str(), 0644);
  REQUIRE_THAT(read.said, ContainsSubstring("Permission denied"));
  REQUIRE_THAT(refused, ContainsSubstring("Permission denied"));
  REQUIRE(before.size() == 2);
  REQUIRE(look_at(folder.path()).size() == 2);
  REQUIRE(TuningDatabase(file).list().at(0).rows == 3);
}

TEST_CASE("a reader sees what others have stored meanwhile", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path file = folder / "tuning.db";
  write_rows(file, 1);
  const auto reader = TuningDatabase::open_for_reading(file);
  const auto count = [&] { return reader->find_all(example_measurement().problem, kDevice, kSms).size(); };
  REQUIRE(count() == 1);
  for (int i = 1; i < 20; ++i) {
    TuningDatabase(file).append(numbered(i));  // merged into the file when it closes
    REQUIRE(count() == static_cast<std::size_t>(i) + 1);
  }
  TuningDatabase writer(file);
  for (int i = 20; i < 40; ++i) {
    writer.append(numbered(i));  // in the log
    REQUIRE(count() == static_cast<std::size_t>(i) + 1);
  }
  fs::remove(file);
  REQUIRE_THROWS_WITH(count(), ContainsSubstring(file.string()));
}

TEST_CASE("readers beside a writer that merges its log see whole rows, and never corruption", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path file = folder / "tuning.db";
  write_rows(file, 1);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    int status = 1;
    try {
      for (int i = 1; i < 150; ++i) TuningDatabase(file).append(numbered(i));
      status = 0;
    } catch (...) {
    }
    ::_exit(status);
  }
  const auto reader = TuningDatabase::open_for_reading(file);
  std::size_t seen = 1;
  int status = -1;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    const auto rows = reader->find_all(example_measurement().problem, kDevice, kSms);
    REQUIRE(rows.size() >= seen);
    seen = rows.size();
    REQUIRE(examine_database(file).findings.empty());
  }
  REQUIRE(status == 0);
  REQUIRE(reader->list().at(0).rows == 150);
}

TEST_CASE("opening for writing touches nothing that was not once a tuning database", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path file = folder / "tuning.db";
  std::string expected;
  SECTION("text") {
    std::ofstream(file) << std::string(9000, 'x');
    expected = "not a tuning database";
  }
  SECTION("a few bytes of text") {
    std::ofstream(file) << "x";
    expected = "not a tuning database";
  }
  SECTION("another program's database, with a log of its own") {
    const pid_t child = ::fork();
    if (child == 0) {
      sqlite3* other = nullptr;
      sqlite3_open(file.c_str(), &other);
      sqlite3_exec(other, "PRAGMA journal_mode = WAL; CREATE TABLE recipes (name TEXT)", nullptr, nullptr, nullptr);
      ::_exit(0);
    }
    ::waitpid(child, nullptr, 0);
    REQUIRE(fs::exists(file.string() + "-wal"));
    expected = "another program";
  }
  SECTION("another program's database that is damaged") {
    run_sql(file, "CREATE TABLE recipes (name TEXT)");
    std::string bytes = bytes_of(file);
    for (std::size_t i = 100; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 37);
    std::ofstream(file, std::ios::binary) << bytes;
    expected = "nothing in it says";
  }
  SECTION("a folder") {
    fs::create_directory(file);
    expected = "a folder";
  }
  SECTION("a pipe") {
    REQUIRE(::mkfifo(file.c_str(), 0600) == 0);
    expected = "no regular file";
  }
  SECTION("a link to nothing") {
    fs::create_symlink(folder / "elsewhere.db", file);
    expected = "a link";
  }
  SECTION("a link to text") {
    std::ofstream(folder / "notes.txt") << std::string(9000, 'x');
    fs::create_symlink(folder / "notes.txt", file);
    expected = "not a tuning database";
  }
  SECTION("a link to a damaged tuning database") {
    write_damaged_database(folder / "there.db");
    fs::create_symlink(folder / "there.db", file);
    expected = "not moved through a link";
  }
  const auto before = look_at(folder.path());
  INFO(expected);
  {
    TuningDatabase database(file);
    CHECK(database.read_only());
    REQUIRE(database.notes().size() == 1);
    CHECK_THAT(database.notes()[0], ContainsSubstring(expected) && ContainsSubstring(file.string()));
    CHECK_THAT(failure_of(database), ContainsSubstring(expected));
    CHECK(database.unreadable_because() == database.notes()[0]);
    CHECK(database.list().empty());
  }
  CHECK(look_at(folder.path()) == before);
}

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

TEST_CASE("what can be read of a damaged file is saved, and what is lost is counted", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path file = folder / "tuning.db";
  constexpr int kRows = 200;
  {
    std::vector<Measurement> rows;
    for (int i = 0; i < kRows; ++i) rows.push_back(numbered(i));
    TuningDatabase(file).append_all(rows);
  }
  const std::string whole = bytes_of(file);
  const std::int64_t pages = static_cast<std::int64_t>(whole.size()) / 4096;
  std::mt19937 random(1);
  int salvaged = 0;
  for (int i = 0; i < 12; ++i) {
    std::string bytes = whole;
    const auto page = 1 + random() % static_cast<std::size_t>(pages - 1);  // not the first, which holds the schema
    for (std::size_t at = page * 4096; at < (page + 1) * 4096; ++at) bytes[at] = static_cast<char>(at * 37);
    std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
    const DatabaseContents contents = read_database(file, Damage::salvage);
    INFO("page " << page << " of " << pages << ": " << contents.rows.size() << " rows, " << contents.lost << " lost, "
                 << contents.damage);
    REQUIRE_FALSE(contents.damage.empty());
    REQUIRE_THROWS_AS(read_database(file), Error);
    std::set<double> numbers;
    for (const Measurement& row : contents.rows) {
      attune::test::require_equal(row, numbered(static_cast<int>(row.samples_us[0])));
      numbers.insert(row.samples_us[0]);
    }
    REQUIRE(numbers.size() == contents.rows.size());
    REQUIRE(static_cast<std::int64_t>(contents.rows.size()) + contents.lost + contents.changed >= kRows);
    if (contents.rows.size() >= kRows - 20) ++salvaged;
  }
  REQUIRE(salvaged >= 9);  // all but a page that others hang from
}

TEST_CASE("every bit of the header, and others by seed: nothing crashes, and no changed row is exported", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path file = folder / "tuning.db", changed = folder / "changed.db";
  constexpr int kRows = 12;
  write_rows(file, kRows);
  std::set<std::string> hashes;
  for (const Measurement& row : read_database(file).rows) hashes.insert(content_hash(row));
  REQUIRE(hashes.size() == kRows);
  const std::string whole = bytes_of(file);
  const auto flip = [&](std::size_t bit) {
    std::string bytes = whole;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
    std::ofstream(changed, std::ios::binary | std::ios::trunc) << bytes;
    INFO("bit " << bit % 8 << " of byte " << bit / 8);
    const Read read = read_in_every_way(changed);
    for (const Damage damage : {Damage::refuse, Damage::salvage}) {
      try {
        const DatabaseContents contents = read_database(changed, damage);
        for (const Measurement& row : contents.rows) REQUIRE(hashes.contains(content_hash(row)));
        const auto told = contents.changed + contents.lost + contents.unreadable;
        if (contents.damage.empty() && read.said.empty()) REQUIRE(contents.rows.size() == kRows);
        if (contents.damage.empty()) REQUIRE(static_cast<std::int64_t>(contents.rows.size()) + told >= kRows);
      } catch (const Error&) {
        // said
      }
    }
    REQUIRE(bytes_of(changed) == bytes);
    REQUIRE(std::distance(fs::directory_iterator(folder.path()), {}) == 2);
  };
  for (std::size_t bit = 0; bit < 100 * 8; ++bit) flip(bit);
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) flip(800 + random() % (whole.size() * 8 - 800));
}

TEST_CASE("the library tells what is wrong with a database once", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path file = folder / "tuning.db";
  write_damaged_database(file);
  std::vector<std::string> said;
  set_log_sink([&](LogLevel, std::string_view message) { said.emplace_back(message); });
  const char* const before = std::getenv("ATTUNE_DATABASE");
  const std::string kept = before ? before : "";
  ::setenv("ATTUNE_DATABASE", file.c_str(), 1);
  const auto tuned = TunedConfigs::at_default_places();
  before ? ::setenv("ATTUNE_DATABASE", kept.c_str(), 1) : ::unsetenv("ATTUNE_DATABASE");
  for (int i = 0; i < 5; ++i) tuned->find(example_measurement().problem, find_device("h200"));

  // One that fails while it is used.
  write_rows(folder / "other.db", 3);
  TunedConfigs other(TuningDatabase::open_for_reading(folder / "other.db"), nullptr);
  REQUIRE(other.find(example_measurement().problem, find_device("h200")));
  fs::remove(folder / "other.db");
  for (int seq : {64, 128, 256})
    other.find(parse_problem(fmt::format("forward bf16 b1 hq4 sq{} d64", seq)), find_device("h200"));
  set_log_sink({});
  std::size_t of_file = 0, of_other = 0;
  for (const std::string& message : said) {
    of_file += message.find(file.string()) != std::string::npos && message.find("corrupt") != std::string::npos;
    of_other += message.find("other.db") != std::string::npos;
  }
  REQUIRE(of_file == 1);
  REQUIRE(of_other == 1);
}
