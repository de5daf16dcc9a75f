#include "runtime/call/problem_log.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <memory>
#include <sstream>
#include <thread>
#include <vector>

#include "attune/attention.h"
#include "attune/log.h"
#include "generator/generate.h"
#include "tests/catch.h"
#include "tests/runtime/fake_device.h"
#include "tests/scoped_variable.h"
#include "tests/temporary_folder.h"

using namespace attune;
using attune::testing::FakeDevice;
using attune::testing::ScopedVariable;
using attune::testing::TemporaryFolder;

namespace problem_log_test {
namespace {

std::string text_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

void write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// What is said meanwhile.
class Said {
 public:
  Said() {
    set_log_sink([this](LogLevel, std::string_view message) { messages.emplace_back(message); }, LogLevel::warning);
  }
  ~Said() { set_log_sink(nullptr); }
  std::vector<std::string> messages;
};

const char* const kFirst = "forward bf16 b1 hq8 sq512 d64 causal";
const char* const kSecond = "backward fp16 b2 hq4 hkv2 sq100 skv300 d72 window=30,0 bhsd";
const std::string kBoth = std::string("problem\n\"") + kFirst + "\"\n\"" + kSecond + "\"\n";

}  // namespace

TEST_CASE("a problem log holds each problem once", "[nogpu]") {
  const TemporaryFolder folder;
  ProblemLog log(folder / "called.csv");
  for (int i = 0; i < 3; ++i) {
    log.note(parse_problem(kFirst));
    log.note(parse_problem(kSecond));
  }
  CHECK(text_of(folder / "called.csv") == kBoth);
  // Another process, or another run, knows what is there, with quotes or without.
  ProblemLog again(folder / "called.csv");
  again.note(parse_problem(kSecond));
  CHECK(text_of(folder / "called.csv") == kBoth);
  write(folder / "by_hand.csv", std::string("problem\r\n") + kFirst + "\r\n" + kSecond);
  ProblemLog by_hand(folder / "by_hand.csv");
  by_hand.note(parse_problem(kFirst));
  by_hand.note(parse_problem("forward bf16 b1 hq1 sq1 d64"));
  CHECK(text_of(folder / "by_hand.csv") ==
        std::string("problem\r\n") + kFirst + "\r\n" + kSecond + "\n\"forward bf16 b1 hq1 sq1 d64\"\n");
}

TEST_CASE("a problem log is whole where threads and processes write to it", "[nogpu]") {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "called.csv";
  constexpr int kProcesses = 4, kThreads = 4, kProblems = 40;
  std::vector<pid_t> children;
  for (int process = 0; process < kProcesses; ++process) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child > 0) {
      children.push_back(child);
      continue;
    }
    {
      ProblemLog log(path);
      std::vector<std::thread> threads;
      for (int thread = 0; thread < kThreads; ++thread) {
        threads.emplace_back([&log] {
          for (int i = 1; i <= kProblems; ++i) log.note(parse_problem("forward sq" + std::to_string(i) + " d64"));
        });
      }
      for (std::thread& thread : threads) thread.join();
    }
    ::_exit(0);
  }
  for (const pid_t child : children) {
    int status = -1;
    ::waitpid(child, &status, 0);
    CHECK(status == 0);
  }
  std::vector<std::string> lines;
  std::istringstream text(text_of(path));
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  REQUIRE(lines.size() == kProblems + 1);
  CHECK(lines.front() == "problem");
  std::sort(lines.begin(), lines.end());
  CHECK(std::adjacent_find(lines.begin(), lines.end()) == lines.end());
}

TEST_CASE("children that are forked while threads log problems keep nobody from it", "[nogpu]") {
  const TemporaryFolder folder;
  const Said said;
  ProblemLog log(folder / "called.csv");
  std::atomic<bool> stop{false};
  std::atomic<int> problems{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&] {
      while (!stop) log.note(parse_problem("forward sq" + std::to_string(++problems) + " d64"));
    });
  }
  std::vector<pid_t> children;
  for (int i = 0; i < 60; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      log.note(parse_problem("forward sq" + std::to_string(1000000 + i) + " d64"));
      ::sleep(3);  // longer than anybody waits for the lock
      ::_exit(0);
    }
    children.push_back(child);
  }
  CHECK(children.size() == 60);
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  stop = true;
  for (std::thread& thread : threads) thread.join();
  for (const pid_t child : children) {
    int status = -1;
    ::waitpid(child, &status, 0);
    CHECK(status == 0);
  }
  CHECK(said.messages.empty());
  std::istringstream text(text_of(folder / "called.csv"));
  int lines = 0;
  for (std::string line; std::getline(text, line);) ++lines;
  CHECK(lines == 1 + problems + 60);
}

TEST_CASE("a problem log says once what is wrong with its file, and changes nothing there", "[nogpu]") {
  const TemporaryFolder folder;
  write(folder / "notes.csv", "name,phone\nAda,1815\n");
  write(folder / "locked.csv", "");
  REQUIRE(::mkfifo(folder.file("fifo.csv").c_str(), 0600) == 0);
  const int locked = ::open(folder.file("locked.csv").c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(locked >= 0);
  REQUIRE(::flock(locked, LOCK_EX) == 0);
  const std::pair<const char*, const char*> cases[] = {
      {"notes.csv", "it holds something else; a list of problems begins with the line \"problem\""},
      {"fifo.csv", "it is no regular file"},
      {"called.txt", "its name must end in .csv"},
      {"nowhere/called.csv", "No such file or directory"},
      {"locked.csv", "another process has kept it locked for a second"}};
  for (const auto& [name, words] : cases) {
    INFO(name);
    const Said said;
    ProblemLog log(folder / name);
    log.note(parse_problem(kFirst));
    log.note(parse_problem(kSecond));
    REQUIRE(said.messages.size() == 1);
    CHECK_THAT(said.messages.front(), Catch::Matchers::Contains(words));
    CHECK_THAT(said.messages.front(), Catch::Matchers::Contains(folder.file(name)));
  }
  ::close(locked);
  CHECK(text_of(folder / "notes.csv") == "name,phone\nAda,1815\n");
  CHECK_FALSE(std::filesystem::exists(folder / "called.txt"));
  CHECK(text_of(folder / "locked.csv").empty());
}

TEST_CASE("calls write their problems where ATTUNE_LOG_PROBLEMS says", "[nogpu]") {
  const TemporaryFolder folder;
  const auto device = std::make_shared<FakeDevice>(find_device("h200"));
  alignas(256) static std::byte memory[256];
  Tensors tensors;
  const auto call = [&](AttentionRuntime& runtime, const std::string& text) {
    const AttentionProblem problem = parse_problem(text);
    for (const Operand operand : {Operand::q, Operand::k, Operand::v, Operand::o}) {
      tensors[operand] = packed_view(problem, operand);
      tensors[operand].data = memory;
    }
    std::vector<std::byte> workspace(runtime.workspace_bytes(problem) + 256);
    void* place = workspace.data();
    std::size_t space = workspace.size();
    std::align(256, runtime.workspace_bytes(problem), place, space);
    runtime.forward(problem, tensors, place, runtime.workspace_bytes(problem), nullptr);
  };
  {
    const ScopedVariable variable("ATTUNE_LOG_PROBLEMS", "");
    AttentionRuntime runtime(device);
    call(runtime, "forward bf16 b1 hq2 sq64 d64");
    CHECK(std::filesystem::is_empty(folder.path()));
  }
  const ScopedVariable variable("ATTUNE_LOG_PROBLEMS", folder.file("called.csv"));
  AttentionRuntime runtime(device);
  // Two lengths of one dispatch class: one plan, two problems.
  for (const char* text :
       {"forward bf16 b1 hq2 sq250 d64", "forward bf16 b1 hq2 sq251 d64", "forward bf16 b1 hq2 sq250 d64"})
    call(runtime, text);
  runtime.prepare(parse_problem("forward bf16 b1 hq2 sq64 d128"));
  CHECK(text_of(folder / "called.csv") ==
        "problem\n\"forward bf16 b1 hq2 sq250 d64\"\n\"forward bf16 b1 hq2 sq251 d64\"\n\"forward bf16 b1 hq2 sq64 "
        "d128\"\n");
}

}  // namespace problem_log_test
