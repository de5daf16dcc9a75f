#include "tuner/trial/worker_process.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "attune/log.h"
#include "generator/device/device_spec.h"
#include "generator/error.h"
#include "tests/catch.h"
#include "tests/tuner/database/left_behind.h"
#include "tests/tuner/test_files.h"
#include "tuner/database/measurement_json.h"

using namespace attune;
using attune::test::TemporaryFolder;
using attune::test::write_script;

namespace {

double seconds_of(const std::function<void()>& action) {
  const auto begin = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

TEST_CASE("a worker answers line by line, and ends when nobody asks", "[nogpu]") {
  const TemporaryFolder folder;
  const std::string command = write_script(folder / "worker", R"(
[ "$1" = worker ] || exit 9
while read -r line; do echo "heard $line"; echo "noise" >&2; done
)");
  pid_t pid = 0;
  {
    WorkerProcess worker(command);
    pid = worker.pid();
    REQUIRE(worker.alive());
    for (const char* text : {"one", "two"}) {
      const WorkerAnswer answer = worker.ask(text, 10);
      REQUIRE(answer.kind == WorkerAnswer::Kind::answered);
      REQUIRE(answer.text == std::string("heard ") + text);
    }
    const std::string large(1 << 20, 'x');
    REQUIRE(worker.ask(large, 20).text == "heard " + large);
  }
  REQUIRE(::kill(pid, 0) != 0);
}

TEST_CASE("a worker that dies is reported with its signal, status and last words", "[nogpu]") {
  const TemporaryFolder folder;
  SECTION("signal") {
    WorkerProcess worker(write_script(folder / "worker", "read -r line; echo 'oh no' >&2; kill -SEGV $$"));
    const WorkerAnswer answer = worker.ask("x", 10);
    REQUIRE(answer.kind == WorkerAnswer::Kind::crashed);
    REQUIRE_THAT(answer.text, ContainsSubstring("SIGSEGV") && ContainsSubstring("oh no"));
    REQUIRE_FALSE(worker.alive());
    REQUIRE(worker.ask("x", 10).kind == WorkerAnswer::Kind::crashed);
  }
  SECTION("exit status") {
    WorkerProcess worker(write_script(folder / "worker", "exit 7"));
    const WorkerAnswer answer = worker.ask("x", 10);
    REQUIRE(answer.kind == WorkerAnswer::Kind::crashed);
    REQUIRE_THAT(answer.text, ContainsSubstring("exit status 7"));
  }
  SECTION("half a line") {
    WorkerProcess worker(write_script(folder / "worker", "read -r line; printf half"));
    REQUIRE(worker.ask("x", 10).kind == WorkerAnswer::Kind::crashed);
  }
  SECTION("closed, but alive") {
    WorkerProcess worker(write_script(folder / "worker", "exec </dev/null >/dev/null; exec sleep 100"));
    REQUIRE(worker.ask("x", 10).kind == WorkerAnswer::Kind::crashed);
    REQUIRE_FALSE(worker.alive());
  }
}

TEST_CASE("a worker that hangs is killed at its time limit", "[nogpu]") {
  const TemporaryFolder folder;
  const std::string command = write_script(folder / "worker", "read -r line; trap '' TERM INT; exec sleep 100");
  WorkerProcess worker(command);
  WorkerAnswer answer;
  const double seconds = seconds_of([&] { answer = worker.ask("x", 0.3); });
  REQUIRE(answer.kind == WorkerAnswer::Kind::timed_out);
  REQUIRE_THAT(answer.text, ContainsSubstring("0.3 s"));
  REQUIRE(seconds > 0.25);
  REQUIRE(seconds < 5);
  REQUIRE(::kill(worker.pid(), 0) != 0);
}

TEST_CASE("a worker that does not listen is killed, too", "[nogpu]") {
  const TemporaryFolder folder;
  WorkerProcess worker(write_script(folder / "worker", "exec sleep 100"));
  REQUIRE(worker.ask(std::string(16 << 20, 'x'), 0.3).kind == WorkerAnswer::Kind::timed_out);
}

TEST_CASE("a question can be cancelled", "[nogpu]") {
  const TemporaryFolder folder;
  WorkerProcess worker(write_script(folder / "worker", "exec sleep 100"));
  const std::atomic<bool> cancel{true};
  const double seconds =
      seconds_of([&] { REQUIRE(worker.ask("x", 100, &cancel).kind == WorkerAnswer::Kind::timed_out); });
  REQUIRE(seconds < 20);
}

TEST_CASE("a worker that floods its standard error costs nothing and is heard to its last words", "[nogpu]") {
  const TemporaryFolder folder;
  SECTION("an answer after it") {
    WorkerProcess worker(write_script(folder / "worker", R"(
read -r line
[ -p /dev/stderr ] || { echo "standard error keeps what is written"; exit 1; }
head -c 300000000 /dev/zero >&2
echo done
)"));
    const WorkerAnswer answer = worker.ask("x", 60);
    CHECK(answer.kind == WorkerAnswer::Kind::answered);
    CHECK(answer.text == "done");
    // No file of this process holds it: neither on disk nor in memory.
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code error;
      CHECK(std::filesystem::read_symlink(entry.path(), error).string().find("memfd:") == std::string::npos);
    }
  }
  SECTION("a death after it") {
    WorkerProcess worker(
        write_script(folder / "worker", "read -r line; head -c 5000000 /dev/zero >&2; echo farewell >&2; exit 4"));
    const WorkerAnswer answer = worker.ask("x", 60);
    CHECK(answer.kind == WorkerAnswer::Kind::crashed);
    CHECK(answer.text.ends_with("farewell"));
    CHECK(answer.text.size() < 800);
  }
  SECTION("without end") {
    WorkerProcess worker(write_script(folder / "worker", "exec cat /dev/zero >&2"));
    CHECK(worker.ask("x", 0.5).kind == WorkerAnswer::Kind::timed_out);
  }
  SECTION("after nobody asks any more") {
    const double seconds = seconds_of([&] {
      WorkerProcess worker(
          write_script(folder / "worker", "echo ready; while read -r line; do :; done; head -c 5000000 /dev/zero >&2"));
      REQUIRE(worker.ask("x", 10).text == "ready");
    });
    CHECK(seconds < WorkerProcess::kFarewellSeconds);
  }
}

TEST_CASE("a worker's warnings are passed on, and only those", "[nogpu]") {
  const TemporaryFolder folder;
  std::vector<std::string> heard;
  set_log_sink([&](LogLevel, std::string_view text) { heard.emplace_back(text); }, LogLevel::warning);
  const std::string here = folder.path().string();
  {
    WorkerProcess worker(write_script(folder / "worker",
                                      "read -r line; echo 'noise' >&2; printf 'attune: warn' >&2\n"
                                      "echo 'ing: " +
                                          here +
                                          " is shared' >&2\n"
                                          "echo 'attune: warning: " +
                                          here +
                                          " is shared' >&2\n"
                                          "printf 'attune: warning: \\033[2J\\n' >&2\n"
                                          "head -c 9000 /dev/zero >&2; echo 'attune: warning: no' >&2\n"
                                          "echo answer"));
    REQUIRE(worker.ask("x", 10).text == "answer");
  }
  set_log_sink({});
  CHECK(heard == std::vector<std::string>{here + " is shared"});
}

namespace {

// A request to compile a kernel for the emulator, which makes the worker run the host compiler.
std::string compile_request() {
  return nlohmann::json{{"op", "compile"},
                        {"device", "emulator"},
                        {"spec", device_spec_to_json(find_device("a100"))},
                        {"problem", "forward bf16 b1 hq1 sq64 d64"},
                        {"config", "sm80 q64 kv64 w4 st1"}}
      .dump();
}

// An environment in which the host compiler is a script, until the end of the scope.
class HostileCompiler {
 public:
  HostileCompiler(const TemporaryFolder& folder, const std::string& body) {
    ::setenv("ATTUNE_HOST_COMPILER",
             write_script(folder / "compiler", "[ \"$1\" = --version ] && { echo hostile; exit 0; }\n" + body).c_str(),
             1);
    const char* cache = std::getenv("ATTUNE_CACHE_DIR");
    cache_ = cache != nullptr ? cache : "";
    ::setenv("ATTUNE_CACHE_DIR", (folder / "cache").c_str(), 1);
  }
  ~HostileCompiler() {
    ::unsetenv("ATTUNE_HOST_COMPILER");
    cache_.empty() ? ::unsetenv("ATTUNE_CACHE_DIR") : ::setenv("ATTUNE_CACHE_DIR", cache_.c_str(), 1);
  }

 private:
  std::string cache_;
};

// Three that hide: in a process group, in a session, and in a session with a dead parent. Each tells that it is there.
std::string hiding_children(const TemporaryFolder& folder) {
  const std::string here = folder.path().string();
  return "setsid sh -c 'echo > " + here + "/a; exec sleep 1000' &\n(setsid sh -c 'echo > " + here +
         "/b; exec sleep 1000' &)\nsh -c 'set -m; sh -c \"echo > " + here + "/c; exec sleep 1000\" &'\nwhile [ ! -e " +
         here + "/a ] || [ ! -e " + here + "/b ] || [ ! -e " + here + "/c ]; do sleep 0.01; done\n";
}

}  // namespace

TEST_CASE("what a worker has started dies with it, wherever it has hidden", "[nogpu]") {
  using attune::test::LeftBehind;
  const TemporaryFolder folder;
  const std::string command = attune::test::sibling_program("attune");
  LeftBehind left_behind;
  SECTION("when the worker is killed at its time limit") {
    const HostileCompiler compiler(folder, hiding_children(folder) + "sleep 1000");
    WorkerProcess worker(command);
    CHECK(worker.ask(compile_request(), 3).kind == WorkerAnswer::Kind::timed_out);
    REQUIRE(std::filesystem::exists(folder / "c"));
    CHECK(left_behind.processes() == std::vector<std::string>{});
  }
  SECTION("when the worker crashes") {
    const HostileCompiler compiler(folder, hiding_children(folder) + "kill -SEGV $PPID; sleep 1000");
    WorkerProcess worker(command);
    const WorkerAnswer answer = worker.ask(compile_request(), 60);
    CHECK(answer.kind == WorkerAnswer::Kind::crashed);
    CHECK_THAT(answer.text, ContainsSubstring("SIGSEGV"));
    CHECK(left_behind.processes() == std::vector<std::string>{});
  }
  SECTION("when the worker ends because nobody asks any more") {
    const HostileCompiler compiler(folder, hiding_children(folder) + "exit 1");
    {
      WorkerProcess worker(command);
      CHECK(worker.ask(compile_request(), 60).kind == WorkerAnswer::Kind::answered);
    }
    CHECK(left_behind.processes() == std::vector<std::string>{});
  }
  SECTION("when the process that asks is killed") {
    const HostileCompiler compiler(folder,
                                   hiding_children(folder) + "echo > " + (folder / "all").string() + "; sleep 1000");
    const pid_t tuner = ::fork();
    if (tuner == 0) {
      WorkerProcess worker(command);
      worker.ask(compile_request(), 1000);
      ::_exit(1);
    }
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!std::filesystem::exists(folder / "all") && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    REQUIRE(std::filesystem::exists(folder / "all"));
    ::kill(tuner, SIGKILL);
    ::waitpid(tuner, nullptr, 0);
    CHECK(left_behind.processes() == std::vector<std::string>{});
  }
}

TEST_CASE("a memory limit reaches the worker behind its supervisor", "[nogpu]") {
  const TemporaryFolder folder;
  const HostileCompiler compiler(folder, "ulimit -v > " + (folder / "limit").string() + "; exit 1");
  WorkerProcess worker(attune::test::sibling_program("attune"));
  worker.limit_memory(std::size_t{3} << 30);
  CHECK(worker.ask(compile_request(), 60).kind == WorkerAnswer::Kind::answered);
  std::ifstream file(folder / "limit");
  std::string kibibytes;
  REQUIRE(std::getline(file, kibibytes));
  CHECK(kibibytes == std::to_string(3 << 20));
}

TEST_CASE("a command that is not there is named", "[nogpu]") {
  REQUIRE_THROWS_WITH(WorkerProcess("/no/such/attune"),
                      ContainsSubstring("/no/such/attune") && ContainsSubstring("ATTUNE_COMMAND"));
  ::setenv("ATTUNE_COMMAND", "/somewhere/attune", 1);
  REQUIRE(find_attune_command() == "/somewhere/attune");
  ::unsetenv("ATTUNE_COMMAND");
}

TEST_CASE("the command is found beside this program", "[nogpu]") {
  ::unsetenv("ATTUNE_COMMAND");
  REQUIRE(std::filesystem::equivalent(find_attune_command(), attune::test::sibling_program("attune")));
}
