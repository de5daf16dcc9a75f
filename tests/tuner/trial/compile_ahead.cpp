#include "tuner/trial/compile_ahead.h"

#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "generator/error.h"
#include "tests/catch.h"

using namespace attune;

TEST_CASE("compiling ahead: once each, what is wanted, never what a caller took", "[nogpu]") {
  std::mutex mutex;
  std::vector<std::size_t> compiled;
  constexpr std::size_t kCandidates = 20;
  {
    CompileAhead ahead(kCandidates, 3, [&] {
      return [&](std::size_t index, const std::atomic<bool>&) {
        const std::lock_guard lock(mutex);
        compiled.push_back(index);
        return CompileOutcome{MeasurementStatus::ok, std::to_string(index)};
      };
    });
    ahead.want({5, 4, 5, 9});
    for (std::size_t i = 0; i < kCandidates; ++i) {
      const auto outcome = ahead.take(i);
      if (i != 4 && i != 5 && i != 9) REQUIRE_FALSE(outcome);
      const std::lock_guard lock(mutex);
      if (outcome) {
        REQUIRE(outcome->reason == std::to_string(i));
      } else {
        compiled.push_back(i);  // as its caller does
      }
    }
    REQUIRE(ahead.pending() == 0);
  }
  REQUIRE(compiled.size() == kCandidates);
  REQUIRE(std::set<std::size_t>(compiled.begin(), compiled.end()).size() == kCandidates);

  SECTION("what is wanted no more is not begun") {
    std::atomic<int> begun = 0;
    CompileAhead slow(10, 1, [&] {
      return [&](std::size_t, const std::atomic<bool>& cancel) {
        ++begun;
        while (!cancel) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return CompileOutcome{};
      };
    });
    slow.want({1, 2, 3});
    while (begun == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    REQUIRE(slow.pending() == 3);
    slow.want({});
    REQUIRE(slow.pending() == 1);
    REQUIRE_FALSE(slow.take(2));
  }
  SECTION("a thread that fails leaves its candidates to the caller") {
    CompileAhead failing(3, 2, []() -> CompileAhead::Compile {
      return [](std::size_t, const std::atomic<bool>&) -> CompileOutcome { throw Error(ErrorCode::io, "no worker"); };
    });
    failing.want({0, 1, 2});
    for (std::size_t i = 0; i < 3; ++i) REQUIRE_FALSE(failing.take(i));
  }
}
