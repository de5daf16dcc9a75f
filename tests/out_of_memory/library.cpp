// Every k-th allocation fails, in calls of the library: each call then ends with an error that says so, or does
// without, and the next one works. Where a call allocates very often, the later k are further and further apart.
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "attune.h"
#include "attune/attention.h"
#include "attune/log.h"
#include "generator/error.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/emulator/emulator_device.h"
#include "tests/catch.h"
#include "tests/out_of_memory/call_data.h"
#include "tests/out_of_memory/failing_allocations.h"
#include "tests/out_of_memory/outcome.h"
#include "tests/tuner/database/kernel_packs.h"
#include "tests/tuner/test_files.h"
#include "tests/without_gpu/fake_toolchain.h"
#include "tuner/database/packed_configs.h"
#include "tuner/database/tuned_configs.h"

using namespace attune;
using attune::test::example_measurement;
using attune::testing::CallData;
using attune::testing::FailingAllocation;
using attune::testing::Outcome;
using attune::testing::outcome;
using attune::testing::outcome_of;
using attune::testing::TemporaryFolder;

namespace {

const attune::testing::FakeToolchain toolchain;

using Call = std::function<Outcome()>;

// Runs the call with one failing allocation after the other, until it needs fewer than that. Returns how many it needs.
std::int64_t fail_each(const Call& call, std::int64_t all_up_to = 400) {
  std::int64_t failed = 0;
  for (std::int64_t number = 1;; number += number < all_up_to ? 1 : number / 12) {
    for (const bool from_then_on : {false, true}) {
      Outcome said;
      bool happened = false;
      {
        const FailingAllocation failing(number, from_then_on);
        said = call();
        happened = failing.happened();
      }
      INFO("allocation " << number << (from_then_on ? " and all after it: " : ": ") << said.text);
      CHECK((said.succeeded || said.told_memory));
      if (said.told_memory) ++failed;
      if (!happened) {
        CHECK(said.succeeded);
        CHECK(failed > 0);
        return number;
      }
    }
    const Outcome afterwards = call();
    INFO("after allocation " << number << " failed: " << afterwards.text);
    REQUIRE(afterwards.succeeded);
  }
}

}  // namespace

TEST_CASE("C: the first call of a process with failing allocations", "[nogpu]") {
  CallData data;
  const std::int64_t needed = fail_each(
      [&] { return outcome(attune_forward(&data.problem, data.operands, CallData::kOperands, nullptr, 0, nullptr)); });
  CHECK(needed >= 1);
}

TEST_CASE("C: preparing, launching, describing, refusing and logging with failing allocations", "[nogpu]") {
  CallData data;
  std::vector<unsigned char> workspace(1 << 20);
  void* const aligned = reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(workspace.data()) + 255) & ~255ull);
  const std::size_t bytes = workspace.size() - 256;
  SECTION("forward with a config") {
    const std::int64_t needed = fail_each([&] {
      attune_prepared* prepared = nullptr;
      Outcome said = outcome(attune_prepare(&data.problem, "sm80 q64 kv64 w4 st1", &prepared));
      if ((prepared != nullptr) != said.succeeded) return Outcome::other("the status and what was prepared differ");
      if (said.succeeded)
        said = outcome(
            attune_launch(prepared, &data.problem, data.operands, CallData::kOperands, aligned, bytes, nullptr));
      attune_release(prepared);
      return said;
    });
    CHECK(needed > 400);
  }
  SECTION("backward") {
    data.problem.pass = ATTUNE_BACKWARD;
    fail_each(
        [&] {
          std::size_t asked = 0;
          const Outcome said = outcome(attune_workspace_bytes(&data.problem, &asked));
          return !said.succeeded ? said
                                 : outcome(attune_backward(&data.problem, data.operands, CallData::kOperands, aligned,
                                                           bytes, nullptr));
        },
        100);
  }
  SECTION("describing") {
    fail_each([&] {
      char text[1000];
      std::size_t asked = 0;
      return outcome(attune_describe(&data.problem, text, sizeof(text), &asked));
    });
  }
  SECTION("refusing") {
    data.problem.head_dim = 60;
    fail_each([&] {
      const attune_status status =
          attune_forward(&data.problem, data.operands, CallData::kOperands, nullptr, 0, nullptr);
      const char* const text = attune_last_error();
      const bool refused =
          status == ATTUNE_ERROR_INVALID_ARGUMENT &&
          (std::strstr(text, "head dim 60") != nullptr || std::strstr(text, "could not be kept") != nullptr);
      return refused ? Outcome::success() : outcome(status);
    });
  }
  SECTION("logging") {
    fail_each([&] {
      int messages = 0;
      const auto hear = [](std::int32_t, const char*, void* user) { ++*static_cast<int*>(user); };
      const Outcome said = outcome(attune_set_log_callback(hear, &messages, ATTUNE_LOG_INFO));
      log(LogLevel::warning, "a message that is too long for a short string");
      // What `messages` was may be gone from here on: going back must not fail.
      const bool restored = attune_set_log_callback(nullptr, nullptr, 0) == ATTUNE_OK;
      return restored ? said : Outcome::other("the callback stays");
    });
  }
}

TEST_CASE("C++: the emulator behind a runtime with failing allocations", "[emulator]") {
  // Compiling a kernel for the host takes a compiler and seconds: the answer from the cache is what is repeated.
  AttentionProblem problem = make_problem(DataType::bf16, 1, 1, 16, 16);
  const auto device = make_emulator_device(find_device("a100"));
  const DeviceBuffer memory(device, 4 * 16 * 16 * 2);
  Tensors tensors;
  std::size_t offset = 0;
  for (const Operand operand : {Operand::q, Operand::k, Operand::v, Operand::o}) {
    tensors[operand] = packed_view(problem, operand, reinterpret_cast<const void*>(memory.pointer() + offset));
    offset += 16 * 16 * 2;
  }
  const Call call = [&] {
    return outcome_of([&] {
      AttentionRuntime runtime(device);
      runtime.forward(problem, tensors, nullptr, 0, nullptr);
      device->synchronize(nullptr);
    });
  };
  REQUIRE(call().succeeded);
  fail_each(call, 60);
}

TEST_CASE("C++: picks with failing allocations", "[nogpu]") {
  const TemporaryFolder folder;
  const auto database = std::make_shared<TuningDatabase>(folder.path() / "tuning.db");
  const DeviceSpec& device = find_device("a100");
  Measurement row = example_measurement("forward bf16 b1 hq2 sq256 d64", "sm80 q64 kv64 w4 st2", 10);
  row.device = device.name;
  row.sm_count = device.sm_count;
  database->append(row);
  const AttentionProblem exact = parse_problem("forward bf16 b1 hq2 sq256 d64");
  const AttentionProblem near = parse_problem("forward bf16 b1 hq2 sq512 d64");
  fail_each(
      [&] {
        return outcome_of([&] {
          TunedConfigs picks(database);
          for (const AttentionProblem& problem : {exact, near}) {
            const auto choice = picks.find(problem, device);
            if (choice && choice->config == KernelConfig()) throw std::runtime_error("a pick of nothing");
          }
        });
      },
      200);
  TunedConfigs picks(database);
  const auto choice = picks.find(exact, device);
  REQUIRE(choice);
  CHECK(choice->origin == ConfigOrigin::exact);
}

TEST_CASE("C++: packs with failing allocations", "[nogpu]") {
  const TemporaryFolder folder;
  const char* const problem = "forward bf16 b1 hq2 sq256 d64";
  const char* const config = "sm80 q64 kv64 w4 st2";
  write_kernel_pack(folder.path() / "model.attune", attune::test::example_pack({{problem, config}}));
  const AttentionProblem asked = parse_problem(problem);
  const KernelLaunch launch = generate(asked, parse_config(config), find_device("a100")).launches[0];
  fail_each(
      [&] {
        return outcome_of([&] {
          LoadedPacks packs;
          packs.load(folder.path() / "model.attune");
          if (!packs.pick(asked, find_device("a100"), {})) throw std::runtime_error("no pick");
          if (!packs.find(launch)) throw std::runtime_error("no kernel");
        });
      },
      200);
}
