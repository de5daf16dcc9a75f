#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "attune/attention.h"
#include "generator/error.h"
#include "tests/catch.h"
#include "tests/runtime/fake_device.h"

using namespace attune;
using attune::testing::FakeDevice;

namespace {

alignas(256) std::byte memory[256], workspace[1 << 22];

// Tensors that are never read: a fake device runs nothing.
struct Call {
  // By default with sums of dQ.
  AttentionProblem problem = parse_problem("backward b2 hq4 hkv2 sq100 skv570 d64 causal");
  Tensors tensors;

  Call() {
    for (const Operand operand : kOperands)
      tensors[operand] = has_strides(operand) ? packed_view(problem, operand, memory) : TensorView{memory};
    tensors[Operand::d_lse].data = nullptr;
  }
};

std::string error_of(ErrorCode code, AttentionRuntime& runtime, const Call& call, std::size_t workspace_bytes,
                     void* used = workspace) {
  try {
    runtime.backward(call.problem, call.tensors, used, workspace_bytes, nullptr);
  } catch (const Error& error) {
    CHECK(error.code() == code);
    return error.what();
  }
  FAIL("nothing was thrown");
  return {};
}

constexpr std::size_t kRows = 2 * 4 * 128;  // in blocks of 128 queries
constexpr std::size_t kSumsBytes = kRows * 64 * sizeof(float), kWorkspaceBytes = kSumsBytes + kRows * 2 * sizeof(float);

}  // namespace

TEST_CASE("gradients are shaped as what they are gradients of", "[nogpu]") {
  const Call call;
  CHECK(call.tensors[Operand::d_q].stride_batch == call.tensors[Operand::q].stride_batch);
  CHECK(call.tensors[Operand::d_o].stride_row == call.tensors[Operand::o].stride_row);
  CHECK(call.tensors[Operand::d_k].stride_batch == call.tensors[Operand::k].stride_batch);
  CHECK(call.tensors[Operand::d_v].stride_row == call.tensors[Operand::v].stride_row);
}

TEST_CASE("one backward call launches its plan in order, compiled once", "[nogpu]") {
  auto device = std::make_shared<FakeDevice>(find_device("h200"));
  AttentionRuntime runtime(device);
  const Call call;
  CHECK(runtime.workspace_bytes(call.problem) >= kWorkspaceBytes);
  CHECK(runtime.workspace_bytes(call.problem) <= sizeof(workspace));
  std::memset(workspace, 1, sizeof(workspace));
  for (int i = 0; i < 2; ++i) runtime.backward(call.problem, call.tensors, workspace, kWorkspaceBytes, nullptr);
  // The sums of dQ are zeroed in stream, and nothing else is.
  const auto value = [](std::byte wanted) { return [wanted](std::byte each) { return each == wanted; }; };
  CHECK(std::all_of(workspace, workspace + kSumsBytes, value(std::byte{0})));
  CHECK(std::all_of(workspace + kSumsBytes, std::end(workspace), value(std::byte{1})));
  CHECK(device->compiled.size() == 3);
  REQUIRE(device->launched.size() == 6);
  CHECK(device->launched[3].entry == "attune_backward_delta");
  CHECK(device->launched[4].entry == "attune_backward_sm90");
  CHECK(device->launched[5].entry == "attune_backward_convert");
  CHECK(device->launched[4].grid_x == device->compiled[1].grid_x(call.problem));
  CHECK(runtime.prepare(call.problem)->choice.tune_command ==
        "attune tune --problem \"" + canonical_text(call.problem) + "\"");
}

TEST_CASE("backward runs what the source picks, the default where it fits or compiles not", "[nogpu]") {
  // The first of a list that was not passed over.
  struct ListSource : ConfigSource {
    std::vector<std::string> configs;
    std::vector<std::string> asked;
    std::optional<ConfigChoice> find(const AttentionProblem& problem, const DeviceSpec&,
                                     const std::vector<KernelConfig>& passed_over) override {
      asked.push_back(canonical_text(problem));
      for (const std::string& text : configs) {
        if (std::find(passed_over.begin(), passed_over.end(), parse_config(text)) == passed_over.end())
          return ConfigChoice{parse_config(text), ConfigOrigin::nearest_shape, "a row", "a command"};
      }
      return std::nullopt;
    }
  };
  const auto source = std::make_shared<ListSource>();
  const auto device = std::make_shared<FakeDevice>(find_device("h200"));
  AttentionRuntime runtime(device, source);
  Call call;
  const auto entries = [&] {
    runtime.backward(call.problem, call.tensors, workspace,
                     std::min(sizeof(workspace), runtime.workspace_bytes(call.problem)), nullptr);
    std::vector<std::string> found;
    for (const auto& launch : device->launched) found.push_back(launch.entry);
    device->launched.clear();
    return found;
  };
  // Nearest shape: a config of forward is none for this.
  source->configs = {"sm90 q128 kv128 st2", "sm80 q32 kv64 w4 st1"};
  CHECK(entries() ==
        std::vector<std::string>{"attune_backward_delta", "attune_backward_dkdv_sm80", "attune_backward_dq_sm80"});
  CHECK(source->asked.front() == canonical_text(call.problem));
  const ConfigChoice choice = runtime.prepare(call.problem)->choice;
  CHECK(canonical_text(choice.config) == "sm80 q32 kv64 w4 st1");
  CHECK(choice.origin == ConfigOrigin::nearest_shape);

  // The same bits at each run: a pick that adds as it comes is passed over.
  call.problem.deterministic = true;
  source->configs = {"sm80 q32 kv64 w4 st1 dq=atomic"};
  CHECK(entries().size() == 3);
  const ConfigChoice other = runtime.prepare(call.problem)->choice;
  CHECK(other.origin == ConfigOrigin::default_config);
  CHECK(other.config.dq != DqAccumulation::atomic);

  device->refused = {"sm80 q64 kv64 w4 st1"};
  source->configs = {"sm80 q64 kv64 w4 st1", "sm80 q64 kv64 w4 st2"};
  AttentionRuntime refusing(device, source);
  CHECK(canonical_text(refusing.prepare(call.problem)->choice.config) == "sm80 q64 kv64 w4 st2");
}

TEST_CASE("a plan with heads apart runs other groups, and no heads that share no keys", "[nogpu]") {
  AttentionRuntime runtime(std::make_shared<FakeDevice>(find_device("h200")));
  Call call;
  const auto prepared = runtime.prepare(call.problem, parse_config("sm80 q32 kv64 w4 st2 kv-grad-per-query-head"));
  const auto launch = [&] {
    runtime.launch(*prepared, call.problem, call.tensors, workspace, sizeof(workspace), nullptr);
  };
  call.problem.heads_kv = 1;
  CHECK_NOTHROW(launch());
  call.problem.heads_kv = call.problem.heads_q;
  CHECK_THROWS_WITH(launch(), ContainsSubstring("kv-grad-per-query-head: needs grouped heads"));
}

TEST_CASE("a gradient that is not aligned takes the element-wise loader", "[nogpu]") {
  Call call;
  CHECK(alignment_of(call.tensors, call.problem) == 16);
  call.tensors[Operand::d_k].data = memory + 2;
  CHECK(alignment_of(call.tensors, call.problem) == 2);
}

TEST_CASE("backward calls that cannot be answered are refused", "[nogpu]") {
  AttentionRuntime runtime(std::make_shared<FakeDevice>(find_device("h200")));
  Call call;
  CHECK_THAT(error_of(ErrorCode::invalid_argument, runtime, call, kWorkspaceBytes - 1), ContainsSubstring("workspace"));
  SECTION("a workspace at an odd address") {
    CHECK_THAT(error_of(ErrorCode::invalid_argument, runtime, call, kWorkspaceBytes, workspace + 16),
               ContainsSubstring("no multiple of 256"));
  }
  SECTION("no LSE") {
    call.tensors[Operand::lse].data = nullptr;
    CHECK_THAT(error_of(ErrorCode::invalid_argument, runtime, call, kWorkspaceBytes), ContainsSubstring("lse"));
  }
  SECTION("no dK") {
    call.tensors[Operand::d_k].data = nullptr;
    CHECK_THAT(error_of(ErrorCode::invalid_argument, runtime, call, kWorkspaceBytes),
               ContainsSubstring("tensor dk is a null pointer"));
  }
  SECTION("an LSE gradient at an odd address") {
    call.tensors[Operand::d_lse].data = memory + 2;
    CHECK_THAT(error_of(ErrorCode::invalid_argument, runtime, call, kWorkspaceBytes),
               ContainsSubstring("dlse starts at"));
  }
  SECTION("a forward problem, and the other way round") {
    CHECK_THROWS_AS(runtime.forward(call.problem, call.tensors, memory, kWorkspaceBytes, nullptr), Error);
    const auto prepared = runtime.prepare(call.problem);
    call.problem.pass = Pass::forward;
    CHECK_THROWS_AS(runtime.launch(*prepared, call.problem, call.tensors, workspace, sizeof(workspace), nullptr),
                    Error);
    CHECK_THAT(error_of(ErrorCode::invalid_argument, runtime, call, kWorkspaceBytes), ContainsSubstring("no backward"));
  }
}
