#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <random>
#include <set>
#include <thread>

#include "tests/catch.h"
#include "tests/tuner/test_files.h"
#include "tuner/database/database_doctor.h"
#include "tuner/database/tuning_database.h"

using namespace attune;
using attune::test::example_measurement;
using attune::test::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

struct Receipt {
  int writer = 0, number = 0;
  auto operator<=>(const Receipt&) const = default;
};

// Stores rows for ever, and writes a receipt for each after append() has returned.
[[noreturn]] void write_rows(const fs::path& file, int writer, int receipts) {
  try {
    TuningDatabase database(file);
    for (int number = 0;; ++number) {
      Measurement row = example_measurement();
      row.samples_us = {1.0 + writer, 1.0 + number};
      database.append(row);
      const Receipt receipt{writer, number};
      if (::write(receipts, &receipt, sizeof receipt) != sizeof receipt) ::_exit(2);
    }
  } catch (...) {
    ::_exit(1);
  }
}

}  // namespace

TEST_CASE("eight processes write and are killed again and again: no acknowledged row is lost", "[nogpu]") {
  constexpr int kProcesses = 8, kKills = 60;
  const TemporaryFolder folder;
  const fs::path file = folder / "tuning.db";
  int receipts[2];
  REQUIRE(::pipe(receipts) == 0);
  std::set<Receipt> acknowledged;
  std::thread reader([&] {
    Receipt receipt;  // smaller than PIPE_BUF: it comes whole
    while (::read(receipts[0], &receipt, sizeof receipt) == sizeof receipt) acknowledged.insert(receipt);
  });

  int writers = 0, failed = 0;
  const auto start = [&] {
    const int writer = writers++;
    const pid_t child = ::fork();
    if (child == 0) write_rows(file, writer, receipts[1]);
    return child;
  };
  const auto kill = [&](pid_t child) {
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    if (!WIFSIGNALED(status)) ++failed;  // it had given up by itself
  };
  std::array<pid_t, kProcesses> children;
  for (pid_t& child : children) child = start();
  std::mt19937 random(1);
  for (int i = 0; i < kKills; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 60));
    pid_t& victim = children[random() % kProcesses];
    kill(victim);
    victim = start();
  }
  for (const pid_t child : children) kill(child);
  ::close(receipts[1]);
  reader.join();
  ::close(receipts[0]);

  const Measurement example = example_measurement();
  TuningDatabase database(file);
  REQUIRE(database.notes().empty());
  std::set<Receipt> stored;
  for (const Measurement& row : database.find_all(example.problem, example.device, example.sm_count))
    stored.insert({static_cast<int>(row.samples_us.at(0)) - 1, static_cast<int>(row.samples_us.at(1)) - 1});
  INFO(acknowledged.size() << " acknowledged, " << stored.size() << " stored, " << writers << " writers");
  REQUIRE(failed == 0);
  REQUIRE(acknowledged.size() > 100);
  REQUIRE(std::includes(stored.begin(), stored.end(), acknowledged.begin(), acknowledged.end()));
  // A writer can have been killed between its last row and the receipt for it.
  REQUIRE(stored.size() <= acknowledged.size() + static_cast<std::size_t>(writers));
  REQUIRE(examine_database(file).findings.empty());
}
