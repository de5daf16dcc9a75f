#include "tuner/worker_process.h"

#include <signal.h>

#include <chrono>
#include <filesystem>
#include <functional>

#include "generator/error.h"
#include "tests/catch.h"
#include "tests/tuner/test_files.h"

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
