// The first call of a process, with one failing allocation after the other, of the library's and of SQLite's. Each is
// made by a process that has called nothing before: what a call leaves behind must not hide what the next one would
// meet.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "attune.h"
#include "generator/device/device_spec.h"
#include "tests/catch.h"
#include "tests/forked_child.h"
#include "tests/out_of_memory/call_data.h"
#include "tests/out_of_memory/failing_allocations.h"
#include "tests/out_of_memory/outcome.h"
#include "tests/tuner/database/kernel_packs.h"
#include "tests/tuner/test_files.h"
#include "tests/without_gpu/fake_toolchain.h"
#include "tuner/database/tuning_database.h"

using namespace attune;
using attune::test::example_measurement;
using attune::testing::CallData;
using attune::testing::FailingAllocation;
using attune::testing::Outcome;
using attune::testing::outcome;
using attune::testing::TemporaryFolder;

namespace {

const attune::testing::FakeToolchain toolchain;

// By which the program knows that it is the process that has called nothing: it holds the name of a call.
constexpr const char* kCall = "ATTUNE_TEST_FIRST_CALL";
constexpr const char *kDatabase = "ATTUNE_TEST_DATABASE", *kPack = "ATTUNE_TEST_PACK";
constexpr const char* kProblem = "forward bf16 b1 hq1 sq64 d64";
constexpr const char* kConfig = "sm80 q64 kv64 w4 st2";

struct FirstCall {
  const char* name;
  std::function<Outcome(CallData&)> make;
};

const std::vector<FirstCall>& first_calls() {
  static const std::vector<FirstCall> calls = {
      {"forward",
       [](CallData& data) {
         return outcome(attune_forward(&data.problem, data.operands, CallData::kOperands, nullptr, 0, nullptr));
       }},
      {"prepare",
       [](CallData& data) {
         attune_prepared* prepared = nullptr;
         const Outcome said = outcome(attune_prepare(&data.problem, nullptr, &prepared));
         attune_release(prepared);
         return said;
       }},
      {"workspace",
       [](CallData& data) {
         std::size_t bytes = 0;
         return outcome(attune_workspace_bytes(&data.problem, &bytes));
       }},
      {"digest",
       [](CallData&) {
         char text[64];
         return outcome(attune_digest(0, text, sizeof(text), nullptr));
       }},
      {"load pack", [](CallData&) { return outcome(attune_load_pack(std::getenv(kPack))); }},
  };
  return calls;
}

// What is picked afterwards: as if no memory had been missing.
bool picks_as_usual(CallData& data) {
  char text[1000] = {};
  if (attune_describe(&data.problem, text, sizeof(text), nullptr) != ATTUNE_OK) return false;
  return std::strstr(text, "\nexact\n") != nullptr || std::strstr(text, "\npack\n") != nullptr;
}

enum class Ending { failed = 1, all_succeeded = 2, one_failed = 3 };

// In a child: makes the call with a failing allocation, then without.
Ending try_call(const FirstCall& call, std::int64_t number, bool from_then_on) {
  CallData data;
  Outcome said;
  bool happened = false;
  {
    const FailingAllocation failing(number, from_then_on);
    said = call.make(data);
    happened = failing.happened();
  }
  const auto complain = [&](const char* text) {
    std::fprintf(stderr, "allocation %d%s: %s\n", static_cast<int>(number), from_then_on ? " and all after it" : "",
                 text);
    return Ending::failed;
  };
  if (!said.succeeded && !said.told_memory) return complain(said.text);
  if (!happened && !said.succeeded) return complain("fails without a reason");
  const Outcome again = call.make(data);
  if (!again.succeeded) return complain(again.told_memory ? "memory is missing for good" : again.text);
  if (!picks_as_usual(data)) return complain("what is picked afterwards is not what was tuned");
  return happened ? Ending::one_failed : Ending::all_succeeded;
}

// In the process that has called nothing, and does not: children do.
bool sweep(const FirstCall& call) {
  for (std::int64_t number = 1;; number += number < 30 ? 1 : number / 14) {
    bool ended = false;
    for (const bool from_then_on : {false, true}) {
      const pid_t child = ::fork();
      if (child == 0) ::_exit(static_cast<int>(try_call(call, number, from_then_on)));
      int status = -1;
      ::waitpid(child, &status, 0);
      if (WIFSIGNALED(status))
        std::fprintf(stderr, "allocation %d: signal %d\n", static_cast<int>(number), WTERMSIG(status));
      const bool as_asked = WIFEXITED(status) && (WEXITSTATUS(status) == static_cast<int>(Ending::one_failed) ||
                                                  WEXITSTATUS(status) == static_cast<int>(Ending::all_succeeded));
      if (!as_asked) return false;
      ended = WEXITSTATUS(status) == static_cast<int>(Ending::all_succeeded);
    }
    if (ended) return number > 30;
  }
}

}  // namespace

TEST_CASE("C: first calls of processes with failing allocations", "[nogpu]") {
  if (const char* const name = std::getenv(kCall)) {
    ::setenv("ATTUNE_DATABASE", std::getenv(kDatabase), 1);
    for (const FirstCall& call : first_calls())
      if (std::strcmp(call.name, name) == 0) REQUIRE(sweep(call));
    return;
  }
  const TemporaryFolder folder;
  const DeviceSpec& device = find_device("a100");
  {
    TuningDatabase database(folder.path() / "tuning.db");
    Measurement row = example_measurement(kProblem, kConfig, 10);
    row.device = device.name;
    row.sm_count = device.sm_count;
    database.append(row);
  }
  PackContents contents = attune::test::example_pack({{kProblem, kConfig}});
  for (PackKernel& kernel : contents.kernels) kernel.image = "fake cubin " + kernel.image;
  write_kernel_pack(folder.path() / "model.attune", contents);
  for (const FirstCall& call : first_calls()) {
    INFO(call.name);
    CHECK(attune::testing::succeeds_in_child(
        [&] {
          ::setenv(kCall, call.name, 1);
          ::setenv(kPack, folder.file("model.attune").c_str(), 1);
          ::setenv(kDatabase, folder.file("tuning.db").c_str(), 1);
          ::execl("/proc/self/exe", "test_out_of_memory", "C: first calls of processes*", nullptr);
          return false;
        },
        200));
  }
}
