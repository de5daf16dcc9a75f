#include "attune/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/catch.h"
#include "tests/temporary_folder.h"

using namespace attune;

namespace {

// The beginning again when a case ends.
struct Restored {
  ~Restored() {
    ::unsetenv("ATTUNE_LOG");
    set_log_sink({});
  }
};

}  // namespace

TEST_CASE("a sink gets the messages of its level and above, as they were said", "[nogpu]") {
  const Restored restored;
  std::vector<std::pair<LogLevel, std::string>> heard;
  set_log_sink([&](LogLevel level, std::string_view text) { heard.emplace_back(level, text); }, LogLevel::info);
  log(LogLevel::debug, "too little");
  log(LogLevel::info, "a pick was passed over");
  log(LogLevel::warning, "a database is damaged");
  REQUIRE(heard.size() == 2);
  CHECK(heard[0] == std::pair(LogLevel::info, std::string("a pick was passed over")));
  CHECK(heard[1] == std::pair(LogLevel::warning, std::string("a database is damaged")));
  CHECK_FALSE(logs(LogLevel::debug));
  CHECK(logs(LogLevel::info));
}

TEST_CASE("ATTUNE_LOG names the level from which standard error is told", "[nogpu]") {
  const Restored restored;
  const auto levels = [](const char* named) {
    named != nullptr ? ::setenv("ATTUNE_LOG", named, 1) : ::unsetenv("ATTUNE_LOG");
    set_log_sink({});
    return std::string(logs(LogLevel::debug) ? "d" : "") + (logs(LogLevel::info) ? "i" : "") +
           (logs(LogLevel::warning) ? "w" : "");
  };
  CHECK(levels(nullptr) == "w");
  CHECK(levels("warning") == "w");
  CHECK(levels("info") == "iw");
  CHECK(levels("debug") == "diw");
  CHECK(levels("off").empty());
}

TEST_CASE("a level that ATTUNE_LOG does not know is named, and warnings are told", "[nogpu]") {
  const Restored restored;
  const attune::testing::TemporaryFolder folder;
  const std::string path = folder.file("err");
  ::setenv("ATTUNE_LOG", "verbose", 1);
  std::fflush(stderr);
  const int kept = ::dup(2), file = ::open(path.c_str(), O_WRONLY | O_CREAT, 0600);
  REQUIRE(::dup2(file, 2) == 2);
  set_log_sink({});
  const bool warns = logs(LogLevel::warning), informs = logs(LogLevel::info);
  REQUIRE(::dup2(kept, 2) == 2);
  ::close(kept);
  ::close(file);
  CHECK((warns && !informs));
  std::ostringstream said;
  said << std::ifstream(path).rdbuf();
  CHECK_THAT(said.str(), ContainsSubstring("ATTUNE_LOG is 'verbose', which is no level: debug, info, warning and off"));
}

TEST_CASE("once a sink was replaced it is no longer running", "[nogpu]") {
  const Restored restored;
  std::atomic<bool> inside = false, left = false;
  set_log_sink([&](LogLevel, std::string_view) {
    inside = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    left = true;
  });
  std::thread other([] { log(LogLevel::warning, "a long story"); });
  while (!inside) std::this_thread::yield();
  set_log_sink([](LogLevel, std::string_view) {});
  CHECK(left);
  other.join();

  // From inside a sink nobody waits, or two that replace each other would wait for ever.
  std::atomic<int> replaced = 0;
  set_log_sink([&](LogLevel, std::string_view) {
    ++replaced;
    while (replaced < 2) std::this_thread::yield();
    set_log_sink([](LogLevel, std::string_view) {});
  });
  std::thread first([] { log(LogLevel::warning, "replaces"); }), second([] { log(LogLevel::warning, "replaces"); });
  first.join();
  second.join();
  CHECK(replaced == 2);
}

TEST_CASE("a sink may throw, log, or be replaced while others log", "[nogpu]") {
  const Restored restored;
  set_log_sink([](LogLevel, std::string_view) { throw std::runtime_error("no"); });
  log(LogLevel::warning, "dropped");
  int said = 0;
  set_log_sink([&](LogLevel level, std::string_view) {
    if (++said == 1) log(level, "from inside");
  });
  log(LogLevel::warning, "from outside");
  CHECK(said == 2);
  std::thread other([] {
    for (int i = 0; i < 1000; ++i) log(LogLevel::info, "one of many");
  });
  for (int i = 0; i < 1000; ++i) set_log_sink([](LogLevel, std::string_view) {});
  other.join();
}
