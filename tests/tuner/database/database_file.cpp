#include "tuner/database/database_file.h"

#include <fmt/format.h>
#include <sqlite3.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "attune/log.h"
#include "tests/catch.h"
#include "tests/scoped_variable.h"
#include "tests/tuner/as_nobody.h"
#include "tests/tuner/database/database_files.h"
#include "tests/tuner/database/reading_files.h"
#include "tests/tuner/test_files.h"
#include "tuner/database/tuned_configs.h"
#include "tuner/database/tuning_database.h"

using namespace attune;
using attune::test::ask_sql;
using attune::test::AsNobody;
using attune::test::bytes_of;
using attune::test::example_measurement;
using attune::test::failure_of;
using attune::test::kept_aside;
using attune::test::look_at;
using attune::test::require_equal;
using attune::test::run_sql;
using attune::test::TemporaryFolder;
using attune::test::write_damaged_database;
using attune::test::write_rows;
using attune::testing::ScopedVariable;
namespace fs = std::filesystem;

namespace database_file_test {
namespace {

constexpr const char* kDevice = "NVIDIA H200";
constexpr int kSms = 132;

}  // namespace

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

TEST_CASE("an empty file is begun", "[nogpu]") {
  const TemporaryFolder folder;
  std::ofstream(folder / "tuning.db").flush();
  TuningDatabase database(folder / "tuning.db");
  REQUIRE(database.notes().empty());
  database.append(example_measurement());
  REQUIRE(database.list().size() == 1);
}

TEST_CASE("a newer schema is read and never written", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path file = folder / "tuning.db";
  TuningDatabase(file).append(example_measurement());
  run_sql(file, "PRAGMA user_version = 99; ALTER TABLE measurement ADD COLUMN novelty TEXT");
  TuningDatabase database(file);
  REQUIRE(database.read_only());
  REQUIRE(database.notes().size() == 1);
  REQUIRE_THAT(database.notes()[0],
               ContainsSubstring("newer") && ContainsSubstring("99") && ContainsSubstring(file.string()));
  REQUIRE(database.best(example_measurement().problem, kDevice, kSms));
  REQUIRE_THAT(failure_of(database, example_measurement()),
               ContainsSubstring(file.string()) && ContainsSubstring("newer"));
  REQUIRE(ask_sql(file, "PRAGMA user_version") == 99);
  REQUIRE(kept_aside(folder).empty());
}

TEST_CASE("another program's database is left alone", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path file = folder / "tuning.db";
  run_sql(file, "CREATE TABLE recipes (name TEXT); INSERT INTO recipes VALUES ('soup')");
  TuningDatabase database(file);
  REQUIRE(database.read_only());
  REQUIRE_THAT(database.notes().at(0), ContainsSubstring("another program"));
  REQUIRE_THAT(failure_of(database, example_measurement()), ContainsSubstring(file.string()));
  REQUIRE_FALSE(database.best(example_measurement().problem, kDevice, kSms));
  REQUIRE(ask_sql(file, "SELECT count(*) FROM sqlite_schema") == 1);
  REQUIRE(kept_aside(folder).empty());
}

TEST_CASE("read-only files and folders are read, and writing says so", "[nogpu]") {
  const TemporaryFolder folder;
  ::chmod(folder.path().c_str(), 0755);
  const fs::path file = folder / "tuning.db";
  TuningDatabase(file).append(example_measurement());
  if (::geteuid() == 0) ::chmod(file.c_str(), 0644);
  SECTION("file") { ::chmod(file.c_str(), 0444); }
  SECTION("folder") { ::chmod(folder.path().c_str(), 0555); }
  {
    const AsNobody nobody;
    TuningDatabase database(file);
    REQUIRE(database.read_only());
    REQUIRE(database.notes().size() == 1);
    REQUIRE_THAT(database.notes()[0], ContainsSubstring("read-only") && ContainsSubstring(file.string()));
    const auto best = database.best(example_measurement().problem, kDevice, kSms);
    REQUIRE(best);
    require_equal(*best, example_measurement());
    REQUIRE_THAT(failure_of(database, example_measurement()),
                 ContainsSubstring("read-only") && ContainsSubstring(file.string()));
  }
  ::chmod(folder.path().c_str(), 0755);
  REQUIRE(kept_aside(folder).empty());
}

TEST_CASE("without a place for it the database is empty and says why", "[nogpu]") {
  const TemporaryFolder folder;
  std::ofstream(folder / "file").flush();
  fs::path path;
  std::string expected;
  SECTION("no home") { expected = "ATTUNE_DATABASE"; }
  SECTION("the folder would have to be inside a file") {
    path = folder / "file/attune/tuning.db";
    expected = path.parent_path().string();
  }
  SECTION("the path is a folder") {
    path = folder / "folder";
    fs::create_directory(path);
    expected = path.string();
  }
  TuningDatabase database(path);
  REQUIRE(database.read_only());
  REQUIRE(database.notes().size() == 1);
  REQUIRE_THAT(database.notes()[0], ContainsSubstring(expected));
  REQUIRE(database.list().empty());
  REQUIRE_FALSE(database.best(example_measurement().problem, kDevice, kSms));
  REQUIRE_THAT(failure_of(database, example_measurement()), ContainsSubstring(expected));
}

TEST_CASE("a full disk is named, and what was stored stays", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path mount_point = folder / "small";
  fs::create_directory(mount_point);
  if (::mount("tmpfs", mount_point.c_str(), "tmpfs", 0, "size=512k") != 0) {
    WARN("not seen: a file system of 512 KiB cannot be mounted here");
    return;
  }
  const fs::path file = mount_point / "tuning.db";
  std::size_t stored = 0, counted = 0;
  std::string complaint;
  {
    TuningDatabase database(file);
    Measurement row = example_measurement();
    row.samples_us.assign(500, 1.0);
    while (complaint.empty() && stored < 1000) {
      row.samples_us[0] = static_cast<double>(stored);
      complaint = failure_of(database, row);
      if (complaint.empty()) ++stored;
    }
    counted = database.find_all(row.problem, kDevice, kSms).size();
  }
  // Not a byte is free: no log and no index of one can be made.
  {
    std::ofstream filler(mount_point / "filler", std::ios::binary);
    for (int i = 0; i < 512 && filler; ++i) filler << std::string(1024, 'x') << std::flush;
  }
  std::size_t reopened = 0, read = 0;
  std::string refused;
  {
    TuningDatabase database(file);
    reopened = database.find_all(example_measurement().problem, kDevice, kSms).size();
    // More than the space that an emptied log has to give.
    Measurement large = example_measurement();
    large.samples_us.assign(100'000, 1.0);
    refused = failure_of(database, large);
    read = TuningDatabase::open_for_reading(file)->find_all(example_measurement().problem, kDevice, kSms).size();
  }
  ::umount2(mount_point.c_str(), MNT_DETACH);
  REQUIRE_THAT(complaint, ContainsSubstring("full") && ContainsSubstring(file.string()));
  REQUIRE(stored > 10);
  REQUIRE(counted == stored);
  REQUIRE(reopened == stored);
  REQUIRE(read == stored);
  REQUIRE_THAT(refused, ContainsSubstring("full"));
}

TEST_CASE("four processes begin and fill one database at the same time", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path file = folder / "tuning.db";
  constexpr int kProcesses = 4, kRows = 50;
  std::vector<pid_t> children;
  for (int process = 0; process < kProcesses; ++process) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      int status = 0;
      try {
        TuningDatabase database(file);
        for (int i = 0; i < kRows; ++i) {
          Measurement row = example_measurement();
          row.samples_us = {1.0 + process, 2.0 + i};
          database.append(row);
        }
        status = database.notes().empty() ? 0 : 2;
      } catch (...) {
        status = 1;
      }
      ::_exit(status);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(status == 0);
  }
  TuningDatabase database(file);
  std::set<std::vector<double>> distinct;
  for (const Measurement& row : database.find_all(example_measurement().problem, kDevice, kSms))
    distinct.insert(row.samples_us);
  REQUIRE(distinct.size() == kProcesses * kRows);
}

TEST_CASE("the library tells what is wrong with a database once", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path file = folder / "tuning.db";
  write_damaged_database(file);
  std::vector<std::string> said;
  set_log_sink([&](LogLevel, std::string_view message) { said.emplace_back(message); });
  const auto tuned = [&] {
    const ScopedVariable named("ATTUNE_DATABASE", file.string());
    return TunedConfigs::at_default_places();
  }();
  for (int i = 0; i < 5; ++i) tuned->find(example_measurement().problem, find_device("h200"));

  // One that fails while it is used.
  write_rows(folder / "other.db", 3);
  TunedConfigs other(TuningDatabase::open_for_reading(folder / "other.db"));
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

}  // namespace database_file_test
