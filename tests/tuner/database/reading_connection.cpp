#include "tuner/database/reading_connection.h"

#include <signal.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/catch.h"
#include "tests/tuner/database/database_files.h"
#include "tests/tuner/database/reading_files.h"
#include "tests/tuner/test_files.h"
#include "tuner/database/database_doctor.h"
#include "tuner/database/tuning_database.h"

using namespace attune;
using attune::test::begin_old_file;
using attune::test::example_measurement;
using attune::test::failure_of;
using attune::test::look_at;
using attune::test::numbered;
using attune::test::Read;
using attune::test::read_in_every_way;
using attune::test::run_sql;
using attune::test::TemporaryFolder;
using attune::test::write_damaged_database;
using attune::test::write_rows;
namespace fs = std::filesystem;

namespace reading_connection_test {
namespace {

constexpr const char* kDevice = "NVIDIA H200";
constexpr int kSms = 132;

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

}  // namespace reading_connection_test
