#include "tuner/sweep/row_writer.h"

#include <fmt/format.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>

#include <chrono>
#include <future>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "tests/catch.h"
#include "tests/tuner/sweep/fake_worker.h"
#include "tests/tuner/test_files.h"

using namespace attune;
using attune::test::expected_order;
using attune::test::fake_worker;
using attune::test::kProblem;
using attune::test::options_for;
using attune::test::TemporaryFolder;
namespace fs = std::filesystem;

TEST_CASE("rows that cannot be stored are kept in the result and noted", "[nogpu]") {
  const TemporaryFolder folder;
  TuningDatabase nowhere{fs::path()};
  const SweepResult result =
      sweep(parse_problem(kProblem), options_for(fake_worker(folder, {"measured 80"}), 3), nowhere);
  REQUIRE(result.rows.size() == 3);
  REQUIRE(result.best);
  REQUIRE(result.notes.size() == 1);
  REQUIRE_THAT(result.notes[0], ContainsSubstring("not stored"));
}

namespace {

// Files of this process end at 8 KiB: a disk that is full for a while.
class SmallFiles {
 public:
  SmallFiles() {
    ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit small{8192, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
  }
  ~SmallFiles() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, SIG_DFL);
  }
  SmallFiles(const SmallFiles&) = delete;
  SmallFiles& operator=(const SmallFiles&) = delete;

 private:
  rlimit before_{};
};

}  // namespace

TEST_CASE("what could not be stored for a while is stored by the same sweep", "[nogpu]") {
  const TemporaryFolder folder;
  TuningDatabase database(folder / "tuning.db");
  const int until = GENERATE(4, 99);  // the last: until the trials have ended
  std::optional<SmallFiles> full;
  int done = 0;
  SweepResult result;
  {
    SweepOptions options = options_for(fake_worker(folder, {"measured 80"}), 8);
    options.budget_seconds = 60;
    result = sweep(parse_problem(kProblem), options, database, [&](const SweepProgress& progress) {
      done = progress.done;
      if (done == 2) full.emplace();
      if (done == until || done == 8) full.reset();
    });
  }
  REQUIRE(result.rows.size() == 8);
  REQUIRE_FALSE(result.not_stored);
  REQUIRE(result.unsaved.empty());
  REQUIRE(result.notes.empty());
  std::set<std::string> stored;
  for (const Measurement& row : database.find_all(parse_problem(kProblem), "NVIDIA H200", 132))
    stored.insert(canonical_text(row.config));
  REQUIRE(stored.size() == 8);
}

TEST_CASE("another program's lock of 12 s costs a sweep no row", "[nogpu][slow]") {
  const TemporaryFolder folder;
  TuningDatabase database(folder / "tuning.db");
  std::thread locker;
  std::promise<bool> locked;
  const auto hold_lock = [&] {
    sqlite3* other = nullptr;
    sqlite3_open((folder / "tuning.db").c_str(), &other);
    sqlite3_busy_timeout(other, 1000);
    locked.set_value(sqlite3_exec(other, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr) == SQLITE_OK);
    std::this_thread::sleep_for(std::chrono::seconds(12));
    sqlite3_close(other);
  };
  bool was_locked = false;
  const SweepResult result = sweep(parse_problem(kProblem), options_for(fake_worker(folder, {"measured 80"}), 8),
                                   database, [&](const SweepProgress& progress) {
                                     if (progress.done != 2 || locker.joinable()) return;
                                     locker = std::thread(hold_lock);
                                     was_locked = locked.get_future().get();
                                   });
  locker.join();
  REQUIRE(was_locked);
  REQUIRE(result.rows.size() == 8);
  REQUIRE(result.best);
  REQUIRE(result.unsaved.empty());
  REQUIRE_FALSE(result.not_stored);
  std::set<std::string> stored;
  for (const Measurement& row : database.find_all(parse_problem(kProblem), "NVIDIA H200", 132))
    stored.insert(canonical_text(row.config));
  REQUIRE(stored.size() == 8);
}

TEST_CASE("one row that cannot be stored costs that row, and is kept", "[nogpu]") {
  const TemporaryFolder folder;
  TuningDatabase database(folder / "tuning.db");
  const auto order = expected_order(6);
  // The column of p20 is NOT NULL, which a NaN is in SQLite.
  const std::string command = fake_worker(folder, {fmt::format(R"sh(if [ "$config" = "{}" ]; then
    echo "{{\"measurement\":{{\"problem\":\"$problem\",\"config\":\"$config\",\"status\":\"wrong_result\",\"p20_us\":\"nan\",\"rigor\":\"measure\"}}}}"
  else measured 80; fi)sh",
                                                               order[2])});
  const SweepResult result = sweep(parse_problem(kProblem), options_for(command, 6), database);
  REQUIRE(result.rows.size() == 6);
  REQUIRE(result.best);
  REQUIRE(result.not_stored);
  REQUIRE(result.unsaved.size() == 1);
  REQUIRE(canonical_text(result.unsaved[0].config) == order[2]);
  REQUIRE(result.notes.size() == 1);
  REQUIRE_THAT(result.notes[0], ContainsSubstring("1 of ") && ContainsSubstring("tuning.db"));
  std::set<std::string> stored;
  for (const Measurement& row : database.find_all(parse_problem(kProblem), "NVIDIA H200", 132))
    stored.insert(canonical_text(row.config));
  REQUIRE(stored.size() == 5);
  REQUIRE_FALSE(stored.contains(order[2]));
}
