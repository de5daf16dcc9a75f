// The ranges that a profiler sees. CTest runs this case twice: as it is, and with ATTUNE_NVTX=1, which a process reads
// once.
#include <dlfcn.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "attune/attention.h"
#include "generator/error.h"
#include "generator/generate.h"
#include "runtime/cuda/cuda_device.h"
#include "tests/catch.h"
#include "tests/without_gpu/fake_toolchain.h"

using namespace attune;

namespace {

// NVTX asks for its injection at the first range of the process.
const attune::testing::FakeToolchain toolchain;
const int injection = ::setenv("NVTX_INJECTION64_PATH", ATTUNE_FAKE_NVTX, 1);

// What was recorded since the last question; nothing where the profiler was not loaded.
std::string recorded() {
  void* const profiler = ::dlopen(ATTUNE_FAKE_NVTX, RTLD_NOW | RTLD_NOLOAD);
  if (profiler == nullptr) return {};
  const auto take = reinterpret_cast<const char* (*)()>(::dlsym(profiler, "fake_nvtx_recorded"));
  std::string text = take();
  ::dlclose(profiler);
  return text;
}

}  // namespace

TEST_CASE("each call is an NVTX range where ATTUNE_NVTX asks for it", "[nogpu]") {
  REQUIRE(injection == 0);
  const char* const asked = std::getenv("ATTUNE_NVTX");
  const bool expected = asked != nullptr && std::string_view(asked) == "1";

  AttentionRuntime runtime(open_cuda_device(0));
  const AttentionProblem problem = make_problem(DataType::bf16, 1, 1, 64, 64);
  alignas(16) static unsigned char bytes[64 * 64 * 2];
  Tensors tensors;
  for (const Operand operand : {Operand::q, Operand::k, Operand::v, Operand::o})
    tensors[operand] = packed_view(problem, operand, bytes);
  recorded();

  const std::string name =
      canonical_text(problem) + " | " + canonical_text(default_config(problem, runtime.device()->spec()));
  const std::string call = "push " + name + "\npop\n";
  runtime.forward(problem, tensors, nullptr, 0, nullptr);
  const std::string domain = "domain attune\n";
  std::string first = recorded();
  if (first.starts_with(domain)) first.erase(0, domain.size());
  CHECK(first == (expected ? "push prepare " + name + "\npop\n" + call : ""));
  runtime.forward(problem, tensors, nullptr, 0, nullptr);
  CHECK(recorded() == (expected ? call : ""));
  const auto prepared = runtime.prepare(problem);
  runtime.launch(*prepared, problem, tensors, nullptr, 0, nullptr);
  CHECK(recorded() == (expected ? call : ""));

  // A call that fails before it launches leaves no range open.
  CHECK_THROWS_AS(runtime.forward(problem, Tensors(), nullptr, 0, nullptr), Error);
  CHECK(recorded().empty());
}
