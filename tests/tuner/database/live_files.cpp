#include "tuner/database/live_files.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <thread>
#include <vector>

#include "generator/error.h"
#include "tests/catch.h"
#include "tests/tuner/database/database_files.h"
#include "tests/tuner/test_files.h"
#include "tuner/database/tuning_database.h"

using namespace attune;
using attune::test::ask_sql_text;
using attune::test::example_measurement;
using attune::test::TemporaryFolder;
namespace fs = std::filesystem;

namespace live_files_test {
namespace {

constexpr const char* kDevice = "NVIDIA H200";
constexpr int kSms = 132;

Measurement numbered(double writer, double number) {
  Measurement row = example_measurement();
  row.samples_us = {1 + writer, 1 + number};
  return row;
}

std::size_t rows_of(TuningDatabase& database, double writer) {
  std::size_t count = 0;
  for (const Measurement& row : database.find_all(example_measurement().problem, kDevice, kSms))
    count += row.samples_us.at(0) == 1 + writer;
  return count;
}

// Whether all rows of a child that runs this were stored by its own account.
template <typename Work>
pid_t fork_to(Work work) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  int status = 1;
  try {
    work();
    status = 0;
  } catch (...) {
  }
  ::_exit(status);
}

void require_success(pid_t child) {
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
}

}  // namespace

TEST_CASE("a process that forks: parent and child store, in any order", "[nogpu]") {
  const TemporaryFolder folder;
  TuningDatabase database(folder / "tuning.db");
  const auto reader = TuningDatabase::open_for_reading(folder / "tuning.db");
  database.append(numbered(0, 0));
  REQUIRE(rows_of(*reader, 0) == 1);
  const pid_t child = fork_to([&] {
    for (int i = 0; i < 20; ++i) database.append(numbered(1, i));
    if (rows_of(*reader, 1) != 20) throw 0;
  });
  for (int i = 1; i < 20; ++i) database.append(numbered(0, i));
  require_success(child);
  REQUIRE(rows_of(database, 0) == 20);
  REQUIRE(rows_of(database, 1) == 20);
  REQUIRE(rows_of(*reader, 1) == 20);
}

TEST_CASE("a parent that closes while its child stores takes no row of the child's with it", "[nogpu]") {
  for (int round = 0; round < 12; ++round) {
    const TemporaryFolder folder;
    const fs::path file = folder / "tuning.db";
    auto database = std::make_unique<TuningDatabase>(file);
    database->append(numbered(0, 0));
    const pid_t child = fork_to([&] {
      for (int i = 0; i < 20; ++i) {
        database->append(numbered(1, i));
        ::usleep(static_cast<useconds_t>(round * 20));
      }
    });
    ::usleep(static_cast<useconds_t>(round * 200));
    database.reset();
    TuningDatabase(file).append(numbered(2, 0));
    require_success(child);
    TuningDatabase after(file);
    INFO("round " << round);
    REQUIRE(rows_of(after, 0) == 1);
    REQUIRE(rows_of(after, 1) == 20);
    REQUIRE(rows_of(after, 2) == 1);
    REQUIRE(ask_sql_text(file, "PRAGMA integrity_check") == "ok");
  }
}

TEST_CASE("threads store and ask while the process forks", "[nogpu]") {
  const TemporaryFolder folder;
  TuningDatabase database(folder / "tuning.db");
  const auto reader = TuningDatabase::open_for_reading(folder / "tuning.db");
  std::atomic<bool> stop{false};
  std::atomic<int> failures{0}, stored{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; !stop; ++i) {
        try {
          database.append(numbered(10 + t, i));
          ++stored;
          if (rows_of(*reader, 10 + t) != static_cast<std::size_t>(i) + 1) ++failures;
        } catch (const Error&) {
          ++failures;
        }
      }
    });
  }
  constexpr int kForks = 10;
  for (int i = 0; i < kForks; ++i) {
    require_success(fork_to([&] {
      for (int row = 0; row < 3; ++row) database.append(numbered(100 + i, row));
    }));
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  REQUIRE(failures == 0);
  REQUIRE(database.list().at(0).rows == stored + kForks * 3);
}

}  // namespace live_files_test
