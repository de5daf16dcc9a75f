#include "tuner/database/output_file.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <set>
#include <thread>

#include "generator/error.h"
#include "tests/catch.h"
#include "tests/tuner/test_files.h"
#include "tuner/database/system_database.h"
#include "tuner/database/tuning_database.h"

using namespace attune;
using attune::test::example_measurement;
using attune::test::TemporaryFolder;
namespace fs = std::filesystem;

namespace output_file_test {
namespace {

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void put(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

mode_t mode_of(const fs::path& path) {
  struct stat facts {};
  REQUIRE(::stat(path.c_str(), &facts) == 0);
  return facts.st_mode & 07777;
}

std::string complaint_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no complaint";
}

// From here on this process cannot make a file without a name, as on file systems that know none.
void forbid_nameless_files() {
  constexpr unsigned kFlags = offsetof(seccomp_data, args[2]);
  sock_filter program[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                           BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 4),
                           BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kFlags),
                           BPF_STMT(BPF_ALU | BPF_AND | BPF_K, O_TMPFILE),
                           BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, O_TMPFILE, 0, 1),
                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EOPNOTSUPP),
                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog filter{std::size(program), program};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
    ::_exit(99);
}

// The wait status of a child that does this and ends.
int in_child(const std::function<void()>& action) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, SIG_DFL);  // Catch2 has handlers of its own
    try {
      action();
    } catch (const std::exception& error) {
      static_cast<void>(!::write(STDERR_FILENO, error.what(), std::strlen(error.what())));
      ::_exit(1);
    }
    ::_exit(0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return status;
}

}  // namespace

TEST_CASE("an output file is whole or what was there, of its old mode or the umask's", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path file = folder / "out.json";
  const mode_t before = ::umask(027);
  write_output_file(file, "one");
  ::umask(before);
  CHECK(bytes_of(file) == "one");
  CHECK(mode_of(file) == 0640);
  ::chmod(file.c_str(), 0604);
  {
    OutputFile second(file);
    second.write("two");
    CHECK(bytes_of(file) == "one");
    CHECK(names_in(folder.path()) == std::set<std::string>{"out.json"});  // nothing beside it, even now
    second.write("!");
    second.commit();
  }
  CHECK(bytes_of(file) == "two!");
  CHECK(mode_of(file) == 0604);
  {
    OutputFile third(file);
    third.write("three");
  }
  CHECK(bytes_of(file) == "two!");
  require_writable_output(file);
  require_writable_output(folder / "new");
  CHECK(names_in(folder.path()) == std::set<std::string>{"out.json"});
}

TEST_CASE("a link stays and what it leads to is written", "[nogpu]") {
  const TemporaryFolder folder;
  fs::create_directory(folder / "deep");
  put(folder / "deep/old", "old");
  fs::create_symlink("deep/old", folder / "link");
  fs::create_symlink("link", folder / "second");
  fs::create_symlink("deep/none", folder / "dangling");
  write_output_file(folder / "second", "new");
  write_output_file(folder / "dangling", "made");
  CHECK(bytes_of(folder / "deep/old") == "new");
  CHECK(bytes_of(folder / "deep/none") == "made");
  for (const char* name : {"link", "second", "dangling"}) CHECK(fs::is_symlink(folder / name));
  fs::create_symlink("round", folder / "round");
  CHECK_THAT(complaint_of([&] { write_output_file(folder / "round", "x"); }),
             ContainsSubstring("round cannot be written: Too many levels of symbolic links"));
}

TEST_CASE("what is read, or is a database, is not written over under any name", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path input = folder / "in.json", database = folder / "tuning";
  put(input, "input");
  fs::create_hard_link(input, folder / "hard");
  fs::create_symlink(input, folder / "soft");
  const OutputRules rules{.inputs = {folder / "none", input, database}};
  for (const char* name : {"in.json", "hard", "soft"}) {
    CHECK_THAT(complaint_of([&] { write_output_file(folder / name, "x", rules); }),
               ContainsSubstring((folder / name).string() + " is not written: it is ") &&
                   ContainsSubstring("read for this: name another file"));
  }
  CHECK(bytes_of(input) == "input");

  std::optional<TuningDatabase> open(database);
  open->append(example_measurement());
  REQUIRE(fs::exists(folder / "tuning-wal"));
  const std::string log = bytes_of(folder / "tuning-wal");
  for (const OutputRules& any : {rules, OutputRules{}, OutputRules{.over_system_database = true}}) {
    CHECK_THAT(complaint_of([&] { write_output_file(database, "x", any); }), ContainsSubstring("name another file"));
    CHECK_THAT(complaint_of([&] { write_output_file(folder / "tuning-wal", "x", any); }),
               ContainsSubstring("it belongs to the database " + database.string()));
    CHECK_THROWS_AS(require_writable_output(database, any), Error);
  }
  CHECK(bytes_of(folder / "tuning-wal") == log);
  open.reset();
  CHECK(TuningDatabase(database).list().size() == 1);
}

TEST_CASE("a shipped database is replaced by the next one, until something is stored in it", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path file = folder / "system.db";
  write_system_database(file, {});
  write_system_database(file, {example_measurement()});
  CHECK(is_system_database(bytes_of(file)));
  CHECK(TuningDatabase::open_shipped(file)->list().size() == 1);
  CHECK_THAT(complaint_of([&] { write_output_file(file, "x"); }), ContainsSubstring("it is a database"));
  TuningDatabase(file).append(example_measurement("forward bf16 b1 hq1 sq512 d64"));
  CHECK_FALSE(is_system_database(bytes_of(file)));
  CHECK_THAT(complaint_of([&] { write_system_database(file, {}); }), ContainsSubstring("changed since"));
  CHECK(TuningDatabase(file).list().size() == 2);
}

TEST_CASE("folders, sockets and devices are refused; pipes and /dev/null take the bytes as they come", "[nogpu]") {
  const TemporaryFolder folder;
  const auto complaint = [&](const fs::path& path) { return complaint_of([&] { write_output_file(path, "x"); }); };
  CHECK_THAT(complaint(folder.path()), ContainsSubstring("it is a folder"));
  CHECK_THAT(complaint(""), ContainsSubstring("name a file"));
  CHECK_THAT(complaint(folder / "new/"), ContainsSubstring("name a file"));
  CHECK_THAT(complaint("/dev/random"), ContainsSubstring("it is a device"));
  CHECK(complaint("/dev/null") == "no complaint");
  CHECK(fs::is_character_file("/dev/null"));
  CHECK_THAT(complaint("/dev/full"), ContainsSubstring("/dev/full cannot be written: No space left on device"));

  const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  (folder / "socket").string().copy(address.sun_path, sizeof(address.sun_path) - 1);
  REQUIRE(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  CHECK_THAT(complaint(folder / "socket"), ContainsSubstring("it is a socket"));
  ::close(listener);

  const fs::path pipe = folder / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  require_writable_output(pipe);
  std::string heard;
  std::thread reader([&] { heard = bytes_of(pipe); });
  const std::string much(1 << 20, 'x');
  write_output_file(pipe, much);
  reader.join();
  CHECK(heard == much);
  CHECK(fs::is_fifo(pipe));
}

TEST_CASE("what cannot be written names the file and the reason, and what was there stays", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path file = folder / "out";
  put(file, "old");
  CHECK_THAT(complaint_of([&] { write_output_file(folder / "no/such", "x"); }),
             ContainsSubstring("no/such cannot be written: No such file or directory; make the folder " +
                               (folder / "no").string() + " first"));
  CHECK_THAT(complaint_of([&] { write_output_file(file / "below", "x"); }), ContainsSubstring("Not a directory"));
  CHECK_THAT(complaint_of([&] { write_output_file(folder / std::string(300, 'x'), "x"); }),
             ContainsSubstring("File name too long"));

  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &limit) == 0);
  const rlimit small{4096, limit.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  const std::string complaint = complaint_of([&] { write_output_file(file, std::string(10'000, 'x')); });
  ::setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, handler);
  CHECK_THAT(complaint, ContainsSubstring("out cannot be written: File too large"));
  CHECK(bytes_of(file) == "old");
  CHECK(names_in(folder.path()) == std::set<std::string>{"out"});
}

TEST_CASE("a process that is ended in the middle leaves what was there and nothing else", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path file = folder / "out";
  put(file, "old");
  for (const int signal : {SIGINT, SIGTERM, SIGKILL}) {
    const int status = in_child([&] {
      OutputFile output(file);
      output.write("new");
      ::raise(signal);
      output.commit();
    });
    CHECK((WIFSIGNALED(status) && WTERMSIG(status) == signal));
    CHECK(bytes_of(file) == "old");
    CHECK(names_in(folder.path()) == std::set<std::string>{"out"});
  }
}

TEST_CASE("file systems without nameless files: the same, but that SIGINT and SIGTERM wait", "[nogpu]") {
  const TemporaryFolder folder;
  const fs::path file = folder / "out";
  put(file, "old");
  ::chmod(file.c_str(), 0604);
  const int dropped = in_child([&] {
    forbid_nameless_files();
    OutputFile output(file);
    output.write("new");
    if (names_in(folder.path()).size() != 2) ::_exit(3);
    ::raise(SIGTERM);  // comes when the file is closed
  });
  CHECK((WIFSIGNALED(dropped) && WTERMSIG(dropped) == SIGTERM));
  CHECK(bytes_of(file) == "old");
  CHECK(names_in(folder.path()) == std::set<std::string>{"out"});
  const int written = in_child([&] {
    forbid_nameless_files();
    write_output_file(file, "new");
  });
  CHECK((WIFEXITED(written) && WEXITSTATUS(written) == 0));
  CHECK(bytes_of(file) == "new");
  CHECK(mode_of(file) == 0604);
  CHECK(names_in(folder.path()) == std::set<std::string>{"out"});
}

}  // namespace output_file_test
