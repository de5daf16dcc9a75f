#include "tuner/database/keep_aside.h"

#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/tuner/database/database_files.h"
#include "tests/tuner/test_files.h"
#include "tuner/database/tuning_database.h"

using namespace attune;
using attune::test::bytes_of;
using attune::test::example_measurement;
using attune::test::kept_aside;
using attune::test::TemporaryFolder;
using attune::test::write_damaged_database;
namespace fs = std::filesystem;

namespace keep_aside_test {
namespace {

constexpr const char* kDevice = "NVIDIA H200";
constexpr int kSms = 132;

}  // namespace

TEST_CASE("a damaged tuning database is kept aside", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path file = folder / "tuning.db";
  const std::string damaged = attune::test::write_damaged_database(file);

  TuningDatabase database(file);
  REQUIRE_FALSE(database.read_only());
  const auto aside = kept_aside(folder);
  REQUIRE(aside.size() == 1);
  REQUIRE(database.notes().size() == 1);
  REQUIRE_THAT(database.notes()[0], ContainsSubstring(aside[0].string()) && ContainsSubstring("corrupt"));
  REQUIRE(attune::test::bytes_of(aside[0]) == damaged);
  REQUIRE(database.list().empty());
  database.append(example_measurement());
  REQUIRE(TuningDatabase(file).list().size() == 1);
  REQUIRE(TuningDatabase(file).notes().empty());
}

TEST_CASE("four processes meet one corrupt file: it is kept aside once", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path file = folder / "tuning.db";
  attune::test::write_damaged_database(file);
  constexpr int kProcesses = 4;
  std::vector<pid_t> children;
  for (int process = 0; process < kProcesses; ++process) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      int status = 1;
      try {
        TuningDatabase database(file);
        Measurement row = example_measurement();
        row.samples_us = {1.0 + process};
        database.append(row);
        status = 0;
      } catch (...) {
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
  REQUIRE(kept_aside(folder).size() == 1);
  REQUIRE(TuningDatabase(file).find_all(example_measurement().problem, kDevice, kSms).size() == kProcesses);
}

}  // namespace keep_aside_test
