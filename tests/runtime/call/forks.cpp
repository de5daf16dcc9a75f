// What a child of a process can call whose other threads were in the middle of a call when it forked.
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "attune/attention.h"
#include "tests/catch.h"
#include "tests/forked_child.h"
#include "tests/runtime/fake_device.h"

using namespace attune;
using attune::testing::FakeDevice;
using attune::testing::succeeds_in_child;

TEST_CASE("a child prepares what another thread was preparing", "[nogpu]") {
  const auto device = std::make_shared<FakeDevice>(find_device("a100"));
  std::atomic<bool> compiling{false}, go_on{false};
  device->while_compiling = [&](const KernelLaunch&) {
    compiling = true;
    compiling.notify_all();
    go_on.wait(false);
  };
  AttentionRuntime runtime(device);
  const AttentionProblem problem = make_problem(DataType::bf16, 1, 2, 256, 64);
  std::thread thread([&] { CHECK(runtime.prepare(problem) != nullptr); });
  compiling.wait(false);
  CHECK(succeeds_in_child([&] {
    go_on = true;
    // The kernel by the class of its problem, and by its own.
    return runtime.prepare(problem) != nullptr && runtime.prepare(problem, parse_config("sm80 q64 kv64 w4 st2"));
  }));
  go_on = true;
  go_on.notify_all();
  thread.join();
}

TEST_CASE("children prepare and find while threads of their parent do", "[nogpu]") {
  const auto device = std::make_shared<FakeDevice>(find_device("a100"));
  AttentionRuntime runtime(device);
  std::atomic<bool> stop{false};
  const auto prepare = [&](int number) {
    return runtime.prepare(make_problem(DataType::bf16, 1, 2, 64 + 16 * (number % 64), 8 + 8 * (number % 32))) !=
           nullptr;
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      for (int number = i; !stop; ++number) prepare(number);
    });
  }
  for (int i = 0; i < 30; ++i) {
    CHECK(succeeds_in_child([&] {
      for (int number = 0; number < 20; ++number)
        if (!prepare(31 * i + number)) return false;
      return true;
    }));
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}
