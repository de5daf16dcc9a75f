// What frozen calls may use: picks of a pack or of this very problem, and kernels of a pack.
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "attune/attention.h"
#include "generator/error.h"
#include "generator/generate.h"
#include "generator/problem/dispatch_class.h"
#include "runtime/cuda/kernel_source.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/runtime/fake_device.h"
#include "tests/scoped_variable.h"

using namespace attune;
using attune::testing::error_of;
using attune::testing::FakeDevice;
using attune::testing::ScopedVariable;

namespace frozen_calls_test {
namespace {

alignas(256) std::byte memory[256], workspace[1 << 20];

// A pick for each length that is listed.
struct LengthSource final : ConfigSource {
  std::map<std::int64_t, ConfigChoice> by_length;
  int asked = 0;

  void add(std::int64_t length, const char* config, ConfigOrigin origin) {
    by_length[length] = {parse_config(config), origin, "", ""};
  }
  std::optional<ConfigChoice> find(const AttentionProblem& problem, const DeviceSpec&,
                                   const std::vector<KernelConfig>&) override {
    ++asked;
    const auto found = by_length.find(problem.seq_q);
    return found == by_length.end() ? std::nullopt : std::optional(found->second);
  }
  bool frozen() const override { return true; }
};

// Has the kernels of these keys.
struct Kernels final : KernelSource {
  std::set<std::string> keys;
  std::optional<PackedKernel> find(const KernelLaunch& launch) const override {
    return has(launch) ? std::optional(PackedKernel()) : std::nullopt;
  }
  bool has(const KernelLaunch& launch) const override { return keys.count(kernel_key(launch)) > 0; }
  void add(const AttentionProblem& problem, const char* config) {
    for (const KernelLaunch& launch : generate(problem, parse_config(config), find_device("a100")).launches)
      keys.insert(kernel_key(launch));
  }
};

// The process's source, none again when this ends.
struct ScopedKernels {
  std::shared_ptr<Kernels> kernels = std::make_shared<Kernels>();
  ScopedKernels() { set_kernel_source(kernels); }
  ~ScopedKernels() { set_kernel_source(nullptr); }
};

AttentionProblem of_length(std::int64_t length) { return make_problem(DataType::bf16, 1, 2, length, 64); }

constexpr const char* kFirst = "sm80 q64 kv64 w4 st2";
constexpr const char* kSecond = "sm80 q64 kv32 w4 st2";
constexpr const char* kThird = "sm80 q128 kv64 w4 st2";

struct Frozen {
  ScopedKernels packed;
  std::shared_ptr<LengthSource> source = std::make_shared<LengthSource>();
  std::shared_ptr<FakeDevice> device = std::make_shared<FakeDevice>(find_device("a100"));
  AttentionRuntime runtime{device, source};

  Frozen() {
    source->add(1000, kFirst, ConfigOrigin::packed);
    source->add(1010, kSecond, ConfigOrigin::exact);
    packed.kernels->add(of_length(1000), kFirst);
    packed.kernels->add(of_length(1010), kSecond);
  }
  void forward(std::int64_t length) {
    const AttentionProblem problem = of_length(length);
    Tensors tensors;
    for (const Operand operand : {Operand::q, Operand::k, Operand::v, Operand::o})
      tensors[operand] = packed_view(problem, operand, memory);
    runtime.forward(problem, tensors, workspace, sizeof(workspace), nullptr);
  }
  std::string config(std::int64_t length) { return canonical_text(runtime.prepare(of_length(length))->choice.config); }
  std::string refused(std::int64_t length) {
    return error_of(ErrorCode::unsupported, [&] { forward(length); });
  }
};

}  // namespace

TEST_CASE("frozen calls use rows of a pack and exact ones, whatever was called before", "[nogpu]") {
  REQUIRE(dispatch_class(of_length(1000)) == dispatch_class(of_length(1010)));
  for (const bool first_comes_first : {true, false}) {
    Frozen calls;
    calls.forward(first_comes_first ? 1000 : 1010);
    CHECK(calls.config(1000) == kFirst);
    CHECK(calls.config(1010) == kSecond);
    CHECK(calls.device->compiled.size() == 2);
    // A length that the pack's row serves, too: neither compiled nor generated anew, also while a graph is captured.
    calls.source->add(1005, kFirst, ConfigOrigin::packed);
    calls.device->capturing = true;
    calls.forward(1005);
    CHECK(calls.device->compiled.size() == 2);
  }
}

TEST_CASE("a frozen call of anything else is an error that names the problem and what to do", "[nogpu]") {
  Frozen calls;
  calls.forward(1000);
  const auto is_told = [](const std::string& text, const std::string& length) {
    CHECK_THAT(text, ContainsSubstring("ATTUNE_FROZEN is set") &&
                         ContainsSubstring("\"forward bf16 b1 hq2 sq" + length + " d64\"") &&
                         ContainsSubstring("attune pack --target a100 --problem \"forward bf16 b1 hq2 sq" + length +
                                           " d64\" --output FILE") &&
                         ContainsSubstring("unset ATTUNE_FROZEN"));
  };
  // A problem of the same dispatch class as a prepared plan whose config fits.
  is_told(calls.refused(1005), "1005");
  calls.source->add(1005, kFirst, ConfigOrigin::nearest_shape);
  is_told(calls.refused(1005), "1005");
  calls.source->add(1005, kFirst, ConfigOrigin::default_config);
  is_told(calls.refused(1005), "1005");
  // A row whose kernel no pack has.
  calls.source->add(2000, kThird, ConfigOrigin::exact);
  const std::string text = calls.refused(2000);
  is_told(text, "2000");
  CHECK_THAT(text,
             ContainsSubstring("no loaded pack has kernel") && ContainsSubstring(kThird) && ContainsSubstring("sm_80"));
  // A config that the caller names needs no row, but its kernel.
  CHECK_NOTHROW(calls.runtime.prepare(of_length(3000), parse_config(kFirst)));
  CHECK_THROWS_WITH(calls.runtime.prepare(of_length(3000), parse_config(kThird)),
                    ContainsSubstring("no loaded pack has kernel"));
  CHECK(calls.device->compiled.size() == 1);
  CHECK(calls.device->launched.size() == 1);

  set_kernel_source(nullptr);
  CHECK_THAT(calls.refused(1010), ContainsSubstring("no loaded pack has kernel"));
}

TEST_CASE("without NVRTC a call that no pack serves says how it could", "[nogpu]") {
  const auto device = std::make_shared<FakeDevice>(find_device("a100"));
  device->refused = {"__global__"};
  device->refusal = ErrorCode::nvrtc_unavailable;
  AttentionRuntime runtime(device);
  const auto text = [&] { return error_of(ErrorCode::nvrtc_unavailable, [&] { runtime.prepare(of_length(1000)); }); };
  CHECK(text() == "refused: __global__");
  const ScopedKernels packs;
  CHECK_THAT(text(), ContainsSubstring("no loaded pack has the kernels of \"forward bf16 b1 hq2 sq1000 d64\"") &&
                         ContainsSubstring("attune pack --target a100") && ContainsSubstring("refused: __global__"));
}

TEST_CASE("ATTUNE_FROZEN is 1, or not set", "[nogpu]") {
  ScopedVariable variable("ATTUNE_FROZEN", "");
  CHECK_FALSE(frozen_by_environment());
  variable.set("");
  CHECK_FALSE(frozen_by_environment());
  variable.set("0");
  CHECK_FALSE(frozen_by_environment());
  variable.set("1");
  CHECK(frozen_by_environment());
  variable.set("yes");
  CHECK_THAT(error_of(ErrorCode::invalid_argument, [] { frozen_by_environment(); }),
             ContainsSubstring("ATTUNE_FROZEN is 'yes'"));
}

TEST_CASE("a kernel's key knows its source, its flags and its architecture, and no first line", "[nogpu]") {
  KernelLaunch launch;
  launch.source = "// attune one\nbody";
  launch.arch = "sm_80";
  const std::string key = kernel_key(launch);
  CHECK(key.size() == 32);
  launch.source = "// attune two\nbody";
  CHECK(kernel_key(launch) == key);
  launch.source = "// attune two\nanother body";
  CHECK(kernel_key(launch) != key);
  launch.source = "// attune one\nbody";
  launch.arch = "sm_86";
  CHECK(kernel_key(launch) != key);
}

}  // namespace frozen_calls_test
