// What several threads may do at once, for ThreadSanitizer as much as for the checks.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "attune/attention.h"
#include "attune/log.h"
#include "generator/generate.h"
#include "runtime/cuda/cubin_cache.h"
#include "runtime/cuda/cuda_device.h"
#include "tests/catch.h"
#include "tests/tuner/test_files.h"
#include "tests/without_gpu/fake/cuda.h"
#include "tests/without_gpu/fake_toolchain.h"
#include "tuner/database/tuned_configs.h"
#include "tuner/trial/compile_ahead.h"
#include "tuner/trial/worker_process.h"

using namespace attune;
using attune::test::example_measurement;
using attune::test::write_script;
using attune::testing::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

const attune::testing::FakeToolchain toolchain;

constexpr int kThreads = 6;

// Each in a thread of its own, all at once.
void at_once(int threads, const std::function<void(int)>& body) {
  std::atomic<int> ready = 0;
  std::vector<std::thread> running;
  for (int i = 0; i < threads; ++i) {
    running.emplace_back([&, i] {
      ++ready;
      while (ready < threads) std::this_thread::yield();
      body(i);
    });
  }
  for (std::thread& thread : running) thread.join();
}

KernelLaunch launch_of(int number) {
  KernelLaunch launch;
  launch.source = "kernel " + std::to_string(number);
  launch.entry = "k";
  launch.arch = "sm_80";
  return launch;
}

}  // namespace

TEST_CASE("many threads call at once, while picks are stored and looked up", "[nogpu]") {
  const TemporaryFolder folder;
  const auto database = std::make_shared<TuningDatabase>(folder.path() / "tuning.db");
  const auto device = open_cuda_device(0);
  const auto row_of = [&](const std::string& config, double us) {
    Measurement row = example_measurement("forward bf16 b1 hq2 sq256 d64", config, us);
    row.device = device->spec().name;
    row.sm_count = device->spec().sm_count;
    return row;
  };
  database->append(row_of("sm80 q64 kv64 w4 st2", 10));
  const auto picks = std::make_shared<TunedConfigs>(database);
  AttentionRuntime runtime(device, picks);
  std::atomic<int> calls = 0, wrong = 0;
  const unsigned before = fake_cuda_launches();
  at_once(kThreads, [&](int index) {
    if (index == 0) {
      for (int i = 0; i < 10; ++i) database->append(row_of("sm80 q128 kv64 w4 st2", 9 - 0.1 * i));
      return;
    }
    std::vector<unsigned char> bytes(4 * 64 * 256 * 2 * 2);
    void* const aligned = reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(bytes.data()) + 15) & ~15ull);
    for (int i = 0; i < 40; ++i) {
      AttentionProblem problem = make_problem(DataType::bf16, 1, 2, 64 + i % 5, i % 3 == 0 ? 32 : 64,
                                              i % 2 == 0 ? MaskKind::none : MaskKind::causal);
      // Nothing causal was tuned.
      if (picks->find(problem, device->spec()).has_value() != (problem.mask == MaskKind::none)) ++wrong;
      Tensors tensors;
      for (TensorView* view :
           {&tensors[Operand::q], &tensors[Operand::k], &tensors[Operand::v], &tensors[Operand::o]}) {
        *view = packed_view(problem, Operand::q);
        view->data = aligned;
      }
      runtime.forward(problem, tensors, nullptr, 0, nullptr);
      ++calls;
      if (i % 8 == index) wrong += runtime.prepare(problem)->kernels.empty() ? 1 : 0;
    }
  });
  CHECK(wrong == 0);
  CHECK(calls == 40 * (kThreads - 1));
  CHECK(fake_cuda_launches() >= before + static_cast<unsigned>(calls));
}

TEST_CASE("threads share a cubin cache while entries are damaged", "[nogpu]") {
  const TemporaryFolder folder;
  std::vector<std::string> images;
  for (int i = 0; i < 8; ++i) images.push_back(CubinCache(folder.path() / "alone").get(launch_of(i)).image);
  CubinCache shared(folder.path() / "shared");
  std::atomic<int> wrong = 0, rebuilt = 0;
  at_once(kThreads, [&](int index) {
    for (int i = 0; i < 60; ++i) {
      const int number = (i + index) % 8;
      const CompiledText compiled = i % 20 == 7 ? shared.rebuild(launch_of(number)) : shared.get(launch_of(number));
      if (compiled.image != images[static_cast<std::size_t>(number)]) ++wrong;
      if (!compiled.resources.from_cache) ++rebuilt;
      if (index != 0 || i % 5 != 0) continue;
      std::error_code gone;
      for (fs::directory_iterator entry(folder.path() / "shared", gone), end; !gone && entry != end;
           entry.increment(gone)) {
        if (entry->path().filename() != ".incoming") std::ofstream(entry->path() / "kernel.cubin") << "damaged";
      }
    }
  });
  CHECK(wrong == 0);
  CHECK(rebuilt >= 8);
  for (int i = 0; i < 8; ++i) {
    shared.get(launch_of(i));
    CHECK(shared.get(launch_of(i)).resources.from_cache);
  }
  CHECK(fs::is_empty(folder.path() / "shared" / ".incoming"));
}

TEST_CASE("compiling ahead: many takers, changing wishes, an end in the middle", "[nogpu]") {
  constexpr std::size_t kCandidates = 200;
  std::vector<std::atomic<int>> begun(kCandidates);
  std::atomic<std::size_t> next = 0;
  {
    CompileAhead ahead(kCandidates, 3, [&] {
      return [&](std::size_t index, const std::atomic<bool>&) {
        ++begun[index];
        std::this_thread::yield();
        return CompileOutcome{MeasurementStatus::ok, std::to_string(index)};
      };
    });
    at_once(kThreads, [&](int thread) {
      for (std::size_t i = next++; i < kCandidates * 3 / 4; i = next++) {
        std::vector<std::size_t> wishes;
        for (std::size_t wish = i; wish < std::min(i + 10, kCandidates); ++wish) wishes.push_back(wish);
        if (thread % 2 == 0) ahead.want(wishes);
        const auto outcome = ahead.take(i);
        if (!outcome) ++begun[i];
        ahead.pending();
      }
    });
    std::vector<std::size_t> rest;
    for (std::size_t i = 0; i < kCandidates; ++i) rest.push_back(i);
    ahead.want(rest);  // and no longer
  }
  for (std::size_t i = 0; i < kCandidates; ++i) {
    INFO(i);
    CHECK(begun[i] <= 1);
    if (i < kCandidates * 3 / 4) CHECK(begun[i] == 1);
  }
}

TEST_CASE("threads have a worker each, some of which die, are cancelled or warn", "[nogpu]") {
  const TemporaryFolder folder;
  const std::string command = write_script(folder.path() / "worker", R"(
while read -r line; do
  case "$line" in
    die) echo 'attune: warning: a worker dies' >&2; kill -SEGV $$ ;;
    hang) exec sleep 100 ;;
    *) echo "heard $line" ;;
  esac
done
)");
  std::atomic<int> warnings = 0, wrong = 0;
  set_log_sink([&](LogLevel, std::string_view) { ++warnings; }, LogLevel::warning);
  at_once(kThreads, [&](int index) {
    for (int i = 0; i < 3; ++i) {
      WorkerProcess worker(command);
      worker.limit_memory(std::size_t{4} << 30);
      if (worker.ask("this", 60).text != "heard this") ++wrong;
      const std::atomic<bool> cancel = true;
      const std::string last = (index + i) % 3 == 0 ? "die" : "that";
      const WorkerAnswer answer = index == 5 && i == 2 ? worker.ask("hang", 0.1) : worker.ask(last, 60, &cancel);
      const bool died = answer.kind != WorkerAnswer::Kind::answered;
      if (died != (last == "die" || (index == 5 && i == 2))) ++wrong;
    }
  });
  set_log_sink({});
  CHECK(wrong == 0);
  CHECK(warnings == 1);  // the same warning once
}

TEST_CASE("sinks are replaced while threads log", "[nogpu]") {
  std::atomic<int> delivered = 0, late = 0;
  at_once(kThreads, [&](int index) {
    for (int i = 0; i < 300; ++i) {
      if (index == 0) {
        const auto alive = std::make_unique<std::atomic<bool>>(true);
        set_log_sink([&, sees = alive.get()](LogLevel, std::string_view) {
          ++delivered;
          if (!*sees) ++late;
        });
        while (delivered <= i) std::this_thread::yield();
        set_log_sink([](LogLevel, std::string_view) {});
        *alive = false;  // and gone: nobody may look at it any more
      } else {
        while (delivered < 300 && i == 299) log(LogLevel::info, "a message");
        log(LogLevel::info, "a message");
        logs(LogLevel::debug);
      }
    }
  });
  set_log_sink({});
  CHECK(late == 0);
  CHECK(delivered >= 300);
}
