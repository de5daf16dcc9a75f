#include "tuner/database/database_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/catch.h"
#include "tests/tuner/as_nobody.h"
#include "tests/tuner/database/database_files.h"
#include "tests/tuner/test_files.h"
#include "tuner/database/tuning_database.h"

using namespace attune;
using attune::test::bytes_of;
using attune::test::example_measurement;
using attune::test::TemporaryFolder;
using std::chrono::milliseconds;
using State = DatabaseLock::State;
namespace fs = std::filesystem;

namespace {

constexpr uid_t kStranger = 54321;

fs::path lock_file_of(const fs::path& database) { return database.string() + "-attune-lock"; }

mode_t mode_of(const fs::path& path) {
  struct stat facts {};
  REQUIRE(::lstat(path.c_str(), &facts) == 0);
  return facts.st_mode & 07777;
}

// A process that does this and then waits to be killed.
class Child {
 public:
  explicit Child(const std::function<void()>& work) {
    int ready[2] = {-1, -1};
    REQUIRE(::pipe(ready) == 0);
    process_ = ::fork();
    if (process_ == 0) {
      ::alarm(60);  // should the test end before
      work();
      static_cast<void>(::write(ready[1], "x", 1) == 1);
      for (;;) ::pause();
    }
    char byte = 0;
    REQUIRE(::read(ready[0], &byte, 1) == 1);
    for (const int end : ready) ::close(end);
  }
  ~Child() { end(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t process() const { return process_; }
  void end() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    process_ = -1;
  }

 private:
  pid_t process_ = -1;
};

// Whether a process of its own opens the database for writing within a second or so, without a note.
bool opens_at_once(const fs::path& file) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(5);
    const TuningDatabase database(file);
    ::_exit(database.read_only() || !database.notes().empty() ? 1 : 0);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

TEST_CASE("a lock on the database's folder, which anybody may take who reads it, stops no writer", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path file = folder / "tuning.db";
  const Child stranger([&] {
    const int opened = ::open(folder.path().c_str(), O_RDONLY | O_DIRECTORY);
    if (::flock(opened, LOCK_EX) != 0) ::_exit(1);
  });
  CHECK(opens_at_once(file));
  CHECK(opens_at_once(file));
}

TEST_CASE("one holder at a time, threads and processes; the file goes away with the lock", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path database = folder / "tuning.db", counter = folder / "counter";
  constexpr int kThreads = 4, kProcesses = 3, kTimes = 25;
  std::ofstream(counter) << 0;
  std::atomic<int> failed = 0;
  const auto count = [&] {
    for (int i = 0; i < kTimes; ++i) {
      const DatabaseLock lock(database, std::chrono::minutes(1));
      if (lock.state() != State::held) ++failed;
      int value = -1;
      std::ifstream(counter) >> value;
      std::ofstream(counter, std::ios::trunc) << value + 1;
    }
  };
  std::vector<pid_t> processes;
  for (int i = 0; i < kProcesses; ++i) {
    const pid_t process = ::fork();
    REQUIRE(process >= 0);
    if (process == 0) {
      count();
      ::_exit(failed == 0 ? 0 : 1);
    }
    processes.push_back(process);
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(count);
  for (std::thread& thread : threads) thread.join();
  for (const pid_t process : processes) {
    int status = -1;
    REQUIRE(::waitpid(process, &status, 0) == process);
    CHECK(status == 0);
  }
  CHECK(failed == 0);
  int value = -1;
  std::ifstream(counter) >> value;
  CHECK(value == kTimes * (kThreads + kProcesses));
  CHECK_FALSE(fs::exists(lock_file_of(database)));
}

TEST_CASE("who waits too long learns whom for; a killed holder is waited for no longer", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path database = folder / "tuning.db";
  Child holder([&] { new DatabaseLock(database); });  // held until the process ends
  const DatabaseLock refused(database, milliseconds(200));
  CHECK(refused.state() == State::busy);
  CHECK_THAT(refused.complaint(), ContainsSubstring(fmt::format("process {} on ", holder.process())) &&
                                      ContainsSubstring(lock_file_of(database).string() + " locked for 0.2 s"));
  holder.end();
  const DatabaseLock taken(database, milliseconds(200));
  CHECK(taken.state() == State::held);
}

TEST_CASE("a queue that moves is waited for longer than any one holder", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path database = folder / "tuning.db";
  std::optional<DatabaseLock> first(std::in_place, database);
  std::thread moving([&] {
    for (int i = 0; i < 4; ++i) {
      std::this_thread::sleep_for(milliseconds(300));
      // As if another had taken it, who is not known to the one that waits.
      const int file = ::open(lock_file_of(database).c_str(), O_WRONLY | O_TRUNC);
      const std::string line = fmt::format("attune lock: process {} on host since now\n", i);
      static_cast<void>(::write(file, line.data(), line.size()) > 0);
      ::close(file);
    }
    std::this_thread::sleep_for(milliseconds(300));
    first.reset();
  });
  const DatabaseLock lock(database, milliseconds(700));
  moving.join();
  CHECK(lock.state() == State::held);
}

TEST_CASE("only who may write to the folder may open its lock", "[nogpu]") {
  struct Case {
    mode_t folder, lock;
  };
  for (const Case& test :
       {Case{0700, 0600}, Case{0755, 0600}, Case{0775, 0660}, Case{02775, 0660}, Case{01777, 0600}, Case{0777, 0666}}) {
    const TemporaryFolder folder;
    const fs::path database = folder / "tuning.db";
    REQUIRE(::chmod(folder.path().c_str(), test.folder) == 0);
    const mode_t before = ::umask(077);
    const DatabaseLock lock(database);
    ::umask(before);
    INFO(fmt::format("{:o}", test.folder));
    REQUIRE(lock.state() == State::held);
    CHECK(mode_of(lock_file_of(database)) == test.lock);
  }
  if (::geteuid() != 0) return;  // only root can be somebody else
  const TemporaryFolder folder;
  const fs::path database = folder / "tuning.db";
  REQUIRE(::chmod(folder.path().c_str(), 0755) == 0);
  const DatabaseLock lock(database);
  REQUIRE(lock.state() == State::held);
  const attune::test::AsNobody nobody;
  CHECK(::open(lock_file_of(database).c_str(), O_RDONLY) < 0);
  CHECK(DatabaseLock(database).state() == State::unavailable);
}

TEST_CASE("root leaves the lock to whom the folder or the database belongs to", "[nogpu]") {
  if (::geteuid() != 0) return;
  const TemporaryFolder folder;
  const fs::path database = folder / "tuning.db";
  const auto owner = [&] {
    const DatabaseLock lock(database);
    struct stat facts {};
    REQUIRE(::stat(lock_file_of(database).c_str(), &facts) == 0);
    return std::pair(facts.st_uid, facts.st_gid);
  };
  REQUIRE(::chown(folder.path().c_str(), kStranger, kStranger + 1) == 0);
  CHECK(owner() == std::pair(kStranger, static_cast<gid_t>(kStranger + 1)));
  std::ofstream(database) << "";
  REQUIRE(::chown(database.c_str(), kStranger + 2, 0) == 0);
  CHECK(owner().first == kStranger + 2);
}

TEST_CASE("in a folder such as /tmp a stranger's lock file is passed over, and told", "[nogpu]") {
  if (::geteuid() != 0) return;
  const TemporaryFolder folder;
  const fs::path database = folder / "tuning.db", file = lock_file_of(database);
  const auto lock_by = [&](uid_t owner) {
    std::ofstream(file) << "";
    REQUIRE(::chown(file.c_str(), owner, owner) == 0);
    REQUIRE(::chmod(file.c_str(), 0666) == 0);
    const int opened = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
    REQUIRE(::flock(opened, LOCK_EX) == 0);
    const DatabaseLock lock(database, milliseconds(50));
    const TuningDatabase begun(database);
    ::close(opened);
    fs::remove(file);
    return std::tuple(lock.state(), lock.complaint(), begun.read_only(), begun.notes());
  };
  REQUIRE(::chmod(folder.path().c_str(), 01777) == 0);
  const auto [state, complaint, read_only, notes] = lock_by(kStranger);
  CHECK(state == State::unavailable);
  CHECK(complaint == file.string() + " belongs to user 54321 and is not used: remove it");
  CHECK_FALSE(read_only);
  CHECK(notes == std::vector<std::string>{complaint});
}

TEST_CASE("in a folder of a team each member's lock counts", "[nogpu]") {
  if (::geteuid() != 0) return;
  const TemporaryFolder folder;
  const fs::path database = folder / "tuning.db", file = lock_file_of(database);
  REQUIRE(::chmod(folder.path().c_str(), 02775) == 0);
  std::ofstream(file) << "attune lock: process 7 on host since then\n";
  REQUIRE(::chown(file.c_str(), kStranger, ::getegid()) == 0);
  const int opened = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(::flock(opened, LOCK_EX) == 0);
  const DatabaseLock lock(database, milliseconds(50));
  ::close(opened);
  CHECK(lock.state() == State::busy);
  CHECK_THAT(lock.complaint(), ContainsSubstring("process 7 on host since then has kept "));
}

TEST_CASE("what has the name of the lock and is none stays as it is", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path database = folder / "tuning.db", file = lock_file_of(database);
  const auto check = [&](const std::string& complaint) {
    const DatabaseLock lock(database, milliseconds(50));
    CHECK(lock.state() == State::unavailable);
    CHECK_THAT(lock.complaint(), ContainsSubstring(complaint));
    CHECK(opens_at_once(folder / "other.db"));
  };
  SECTION("a text") {
    std::ofstream(file) << "somebody's notes";
    check(file.string() + " is no lock of a database and is not used: remove it");
    CHECK(bytes_of(file) == "somebody's notes");
  }
  SECTION("another name of a file") {
    std::ofstream(folder / "elsewhere") << "";
    fs::create_hard_link(folder / "elsewhere", file);
    check("is no lock of a database");
    CHECK(bytes_of(folder / "elsewhere").empty());
  }
  SECTION("a link") {
    std::ofstream(folder / "elsewhere") << "";
    fs::create_symlink(folder / "elsewhere", file);
    check("");
    CHECK(bytes_of(folder / "elsewhere").empty());
  }
  SECTION("a FIFO") {
    REQUIRE(::mkfifo(file.c_str(), 0600) == 0);
    check("is no lock of a database");
  }
  SECTION("a folder") {
    fs::create_directory(file);
    check("");
  }
  CHECK(fs::exists(fs::symlink_status(file)));
}

TEST_CASE("an older version, which locks the folder, waits for the holder", "[nogpu]") {
  const TemporaryFolder folder;
  const int older = ::open(folder.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  {
    const DatabaseLock lock(folder / "tuning.db");
    CHECK(::flock(older, LOCK_EX | LOCK_NB) != 0);
    // A child that is forked meanwhile has the same open files, and keeps neither lock.
    const Child child([] {});
    CHECK(lock.state() == State::held);
  }
  CHECK(::flock(older, LOCK_EX | LOCK_NB) == 0);
  ::close(older);
}

TEST_CASE("a forked child does not keep the lock of its parent", "[nogpu]") {
  const TemporaryFolder folder;
  std::optional<DatabaseLock> held(std::in_place, folder / "tuning.db");
  const Child child([] {});
  held.reset();
  CHECK(DatabaseLock(folder / "tuning.db", milliseconds(50)).state() == State::held);
}

TEST_CASE("a folder in which nothing can be made is not locked", "[nogpu]") {
  CHECK(DatabaseLock("/proc/tuning.db").state() == State::unavailable);
  CHECK(DatabaseLock("/nowhere/at/all/tuning.db").state() == State::unavailable);
  CHECK(DatabaseLock("/proc/tuning.db").complaint().empty());
}

TEST_CASE("a lock that stays with another keeps nobody from a whole database, and begins none", "[nogpu][slow]") {
  const TemporaryFolder folder;
  const fs::path file = folder / "tuning.db", absent = folder / "absent.db";
  TuningDatabase(file).append(example_measurement());
  const Child holder([&] {
    new DatabaseLock(file);
    new DatabaseLock(absent);
  });
  CHECK(opens_at_once(file));
  const TuningDatabase database(absent);
  CHECK(database.read_only());
  REQUIRE(database.notes().size() == 1);
  CHECK_THAT(database.notes()[0], ContainsSubstring(fmt::format("{} cannot be opened for writing: process {} on ",
                                                                absent.string(), holder.process())) &&
                                      ContainsSubstring("locked for 10 s"));
  CHECK_FALSE(fs::exists(absent));
}

TEST_CASE("a whole database is opened without a lock: nothing in its folder shows it", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path file = folder / "tuning.db";
  TuningDatabase(file).append(example_measurement());
  std::ofstream(lock_file_of(file)) << "somebody's notes";
  CHECK(opens_at_once(file));
}
