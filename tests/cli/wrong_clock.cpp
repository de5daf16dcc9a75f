// A process whose clock is wrong beside others: what these are making stays.
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/catch.h"
#include "tests/cli/command.h"
#include "tests/temporary_folder.h"
#include "tests/tuner/test_files.h"

using namespace attune::testing;
namespace fs = std::filesystem;

namespace {

// For LD_PRELOAD: the time of day is so many seconds off, that of files is not.
constexpr const char* kOtherClock = R"(
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec* now) {
  const char* seconds = getenv("SECONDS_AHEAD");
  int failed = syscall(SYS_clock_gettime, clock, now);
  if (!failed && clock == CLOCK_REALTIME && seconds) now->tv_sec += atoi(seconds);
  return failed;
}
time_t time(time_t* to) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (to) *to = now.tv_sec;
  return now.tv_sec;
}
)";

}  // namespace

TEST_CASE("a clock that is hours off removes nothing that is being made, and what is old all the same", "[emulator]") {
  const TemporaryFolder folder;
  write_file(folder.file("clock.c"), kOtherClock);
  const std::string make = "cc -w -shared -fPIC -o " + folder.file("clock.so") + " " + folder.file("clock.c");
  REQUIRE(std::system(make.c_str()) == 0);
  const std::string compiler =
      attune::test::write_script(folder / "compiler", "[ \"$1\" = --version ] && { echo one; exit 0; }\nexit 1\n");
  const fs::path kernels = folder / "cache/emulator", fresh = kernels / ".building-fresh",
                 old = kernels / ".building-old";
  for (const std::string seconds : {"7200", "-7200"}) {
    INFO(seconds << " seconds ahead");
    fs::create_directories(fresh);
    fs::create_directories(old);
    fs::last_write_time(old, fs::file_time_type::clock::now() - std::chrono::minutes(90));
    const CommandResult result = run_attune(words("check --seq 16 --head-dim 16 --device emulator"),
                                            {{"ATTUNE_CACHE_DIR", folder.file("cache")},
                                             {"ATTUNE_HOST_COMPILER", compiler},
                                             {"LD_PRELOAD", folder.file("clock.so")},
                                             {"ASAN_OPTIONS", "verify_asan_link_order=0"},
                                             {"SECONDS_AHEAD", seconds}});
    CHECK(result.status == 3);
    CHECK_THAT(result.err, ContainsSubstring("refused a kernel for the emulator"));
    CHECK(fs::exists(fresh));
    CHECK_FALSE(fs::exists(old));
  }
}
