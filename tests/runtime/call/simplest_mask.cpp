// A mask that hides nothing is none, whichever way a program asks: by the fields of a problem, by make_problem(), by
// words. Rows are found by the problem with the simplest mask, plans are shared, and launches get what they need.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "attune/attention.h"
#include "generator/error.h"
#include "generator/generate.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/runtime/fake_device.h"

using namespace attune;
using attune::testing::error_of;
using attune::testing::FakeDevice;

namespace {

alignas(256) std::byte kernel_memory[1 << 20];

Tensors packed_tensors(const AttentionProblem& problem) {
  Tensors tensors;
  for (const Operand operand :
       {Operand::q, Operand::k, Operand::v, Operand::o, Operand::d_q, Operand::d_k, Operand::d_v, Operand::d_o})
    tensors[operand] = packed_view(problem, operand, kernel_memory);
  tensors[Operand::lse].data = kernel_memory;
  return tensors;
}

// The fields of the last launch, without what lies between them.
std::vector<std::byte> last_arguments(const FakeDevice& device) {
  const ArgumentLayout& layout = device.compiled.back().arguments;
  const std::vector<std::byte>& all = device.launched.back().arguments;
  std::vector<std::byte> fields;
  for (std::size_t i = 0; i < layout.fields.size(); ++i) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(layout.offsets[i]);
    fields.insert(fields.end(), begin, begin + static_cast<std::ptrdiff_t>(size_of(layout.fields[i])));
  }
  return fields;
}

// A row of one problem alone, and who was asked for.
struct OneRow final : ConfigSource {
  AttentionProblem tuned;
  std::vector<AttentionProblem> asked;
  explicit OneRow(const std::string& text) : tuned(parse_problem(text)) {}
  std::optional<ConfigChoice> find(const AttentionProblem& problem, const DeviceSpec&,
                                   const std::vector<KernelConfig>&) override {
    asked.push_back(problem);
    if (!(problem == tuned)) return std::nullopt;
    return ConfigChoice{parse_config("sm80 q16 kv32 w1 st2"), ConfigOrigin::exact, "the row", ""};
  }
};

constexpr const char* kDecoding = "forward bf16 b4 hq8 hkv2 sq1 skv4096 d128";

// The ways to ask for it with a mask that hides nothing.
std::vector<AttentionProblem> ways() {
  const AttentionProblem none = parse_problem(kDecoding);
  std::vector<AttentionProblem> ways = {none, parse_problem(std::string(kDecoding) + " causal"),
                                        parse_problem(std::string(kDecoding) + " window=4095,0")};
  AttentionProblem by_fields = none;
  by_fields.mask = MaskKind::causal;
  by_fields.mask_offset = bottom_right_offset(none);
  ways.push_back(by_fields);
  by_fields.mask_offset = 5000;
  ways.push_back(by_fields);
  by_fields.mask = MaskKind::window;
  by_fields.first_offset = -10;
  ways.push_back(by_fields);
  by_fields.mask_offset = kOpenDiagonal;
  ways.push_back(by_fields);
  AttentionProblem made = make_problem(DataType::bf16, 4, 8, 1, 128, MaskKind::causal);
  made.heads_kv = 2;
  made.seq_kv = 4096;
  made.mask_offset = 4095;
  ways.push_back(made);
  return ways;
}

}  // namespace

TEST_CASE("a tuned row is found by every problem that asks the same, and one plan serves them", "[nogpu]") {
  const auto source = std::make_shared<OneRow>(kDecoding);
  const auto device = std::make_shared<FakeDevice>(find_device("h200"));
  AttentionRuntime runtime(device, source);
  const AttentionProblem none = parse_problem(kDecoding);
  const std::size_t bytes = runtime.workspace_bytes(none);
  std::vector<std::byte> arguments;
  for (const AttentionProblem& problem : ways()) {
    INFO(to_string(problem.mask) << " " << problem.first_offset << " " << problem.mask_offset);
    REQUIRE_NOTHROW(validate(problem));
    CHECK(runtime.workspace_bytes(problem) == bytes);
    for (int repeat = 0; repeat < 3; ++repeat) {
      runtime.forward(problem, packed_tensors(problem), kernel_memory, sizeof(kernel_memory), nullptr);
      if (arguments.empty()) arguments = last_arguments(*device);
      CHECK((last_arguments(*device) == arguments));
    }
    const auto prepared = runtime.prepare(problem);
    CHECK(prepared->choice.detail == "the row");
    CHECK(prepared->plan.problem == none);
    runtime.launch(*prepared, problem, packed_tensors(problem), kernel_memory, sizeof(kernel_memory), nullptr);
    CHECK((last_arguments(*device) == arguments));
  }
  CHECK(device->compiled.size() == 1);
  for (const AttentionProblem& problem : source->asked) CHECK(problem == none);
}

TEST_CASE("a mask that hides something keeps its kernels", "[nogpu]") {
  const auto source = std::make_shared<OneRow>(kDecoding);
  AttentionRuntime runtime(std::make_shared<FakeDevice>(find_device("h200")), source);
  AttentionProblem causal = parse_problem(kDecoding);
  causal.mask = MaskKind::causal;
  causal.mask_offset = 4094;
  CHECK(runtime.prepare(causal)->plan.problem == causal);
  CHECK(runtime.prepare(causal)->choice.origin == ConfigOrigin::default_config);
  // A window that hides no first key is a causal mask.
  AttentionProblem window = causal;
  window.mask = MaskKind::window;
  window.first_offset = 0;
  CHECK(runtime.prepare(window) == runtime.prepare(causal));
}

TEST_CASE("backward, too, is of the simplest mask", "[nogpu]") {
  const auto device = std::make_shared<FakeDevice>(find_device("h200"));
  AttentionRuntime runtime(device);
  AttentionProblem none = parse_problem("backward bf16 b1 hq2 sq1 skv100 d64"), causal = none;
  causal.mask = MaskKind::causal;
  causal.mask_offset = 99;
  std::vector<std::byte> workspace(runtime.workspace_bytes(none) + 256);
  void* const aligned = reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(workspace.data()) + 255) & ~255ull);
  runtime.backward(none, packed_tensors(none), aligned, workspace.size() - 256, nullptr);
  const std::size_t compiled = device->compiled.size();
  runtime.backward(causal, packed_tensors(causal), aligned, workspace.size() - 256, nullptr);
  CHECK(device->compiled.size() == compiled);
  CHECK(runtime.prepare(causal) == runtime.prepare(none));
}

TEST_CASE("a kernel that was prepared for a mask runs a problem in which it hides nothing", "[nogpu]") {
  const auto device = std::make_shared<FakeDevice>(find_device("h200"));
  AttentionRuntime runtime(device);
  const auto prepared = runtime.prepare(parse_problem("hq8 sq64 skv4096 d128 causal"));
  AttentionProblem step = parse_problem("hq8 sq64 skv4096 d128 causal");
  step.seq_q = 1;
  step.mask_offset = 4095;
  CHECK_NOTHROW(runtime.launch(*prepared, step, packed_tensors(step), kernel_memory, sizeof(kernel_memory), nullptr));
  // The other way round there is no such kernel, and the message says of what kind the kernel is.
  const auto of_step = runtime.prepare(step);
  const AttentionProblem several = parse_problem("hq8 sq64 skv4096 d128 causal");
  CHECK_THAT(error_of(ErrorCode::invalid_argument,
                      [&] {
                        runtime.launch(*of_step, several, packed_tensors(several), kernel_memory, sizeof(kernel_memory),
                                       nullptr);
                      }),
             ContainsSubstring("cannot run") && ContainsSubstring("causal"));
}
