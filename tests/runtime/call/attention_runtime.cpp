#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "attune/attention.h"
#include "attune/log.h"
#include "generator/error.h"
#include "generator/families/forward_common/combine.h"
#include "generator/families/forward_sm90/plan.h"
#include "generator/generate.h"
#include "generator/problem/dispatch_class.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/runtime/fake_device.h"

using namespace attune;
using attune::testing::error_of;
using attune::testing::FakeDevice;

namespace attention_runtime_test {
namespace {

alignas(256) std::byte memory[256];

// Tensors that are never read: a fake device runs nothing.
Tensors packed_tensors(const AttentionProblem& problem) {
  Tensors tensors;
  tensors[Operand::q] = packed_view(problem, Operand::q);
  tensors[Operand::k] = packed_view(problem, Operand::k);
  tensors[Operand::v] = packed_view(problem, Operand::v);
  tensors[Operand::o] = packed_view(problem, Operand::o);
  tensors[Operand::q].data = tensors[Operand::k].data = tensors[Operand::v].data = tensors[Operand::o].data = memory;
  return tensors;
}

template <typename Value = std::int32_t>
Value argument(const FakeDevice& device, KernelArgument field) {
  const ArgumentLayout& layout = device.compiled.back().arguments;
  for (std::size_t i = 0; i < layout.fields.size(); ++i) {
    if (layout.fields[i] != field) continue;
    Value value;
    std::memcpy(&value, device.launched.back().arguments.data() + layout.offsets[i], sizeof(value));
    return value;
  }
  FAIL("no such argument");
  return 0;
}

struct FixedSource : ConfigSource {
  std::string config;
  int asked = 0;
  explicit FixedSource(std::string text) : config(std::move(text)) {}
  std::optional<ConfigChoice> find(const AttentionProblem&, const DeviceSpec&,
                                   const std::vector<KernelConfig>& passed_over) override {
    if (passed_over.empty()) ++asked;
    return ConfigChoice{parse_config(config), ConfigOrigin::exact, "a test", ""};
  }
};

// The first of a list that was not passed over.
struct ListSource : ConfigSource {
  std::vector<std::string> configs;
  explicit ListSource(std::vector<std::string> texts) : configs(std::move(texts)) {}
  std::optional<ConfigChoice> find(const AttentionProblem&, const DeviceSpec&,
                                   const std::vector<KernelConfig>& passed_over) override {
    for (const std::string& text : configs) {
      const KernelConfig config = parse_config(text);
      if (std::find(passed_over.begin(), passed_over.end(), config) == passed_over.end())
        return ConfigChoice{config, ConfigOrigin::exact, "row of " + text, ""};
    }
    return std::nullopt;
  }
};

const DeviceSpec& h200() { return find_device("h200"); }

}  // namespace

TEST_CASE("packed views follow the layout", "[nogpu]") {
  AttentionProblem problem = make_problem(DataType::bf16, 2, 6, 10, 64);
  problem.heads_kv = 3;
  problem.seq_kv = 20;
  problem.layout = Layout::bshd;
  const TensorView q = packed_view(problem, Operand::q), k = packed_view(problem, Operand::k);
  CHECK((q.stride_batch == 10 * 6 * 64 && q.stride_row == 6 * 64 && q.stride_head == 64));
  CHECK((k.stride_batch == 20 * 3 * 64 && k.stride_row == 3 * 64 && k.stride_head == 64));
  problem.layout = Layout::bhsd;
  const TensorView v = packed_view(problem, Operand::v), o = packed_view(problem, Operand::o);
  CHECK((v.stride_batch == 20 * 3 * 64 && v.stride_head == 20 * 64 && v.stride_row == 64));
  CHECK((o.stride_batch == 10 * 6 * 64 && o.stride_head == 10 * 64 && o.stride_row == 64));
}

TEST_CASE("alignment comes from pointers and from the strides that are used", "[nogpu]") {
  const AttentionProblem problem = make_problem(DataType::bf16, 1, 2, 8, 64);
  Tensors tensors = packed_tensors(problem);
  CHECK(alignment_of(tensors, problem) == 16);
  tensors[Operand::k].data = memory + 8;
  CHECK(alignment_of(tensors, problem) == 2);
  tensors[Operand::k].data = memory + 32;
  CHECK(alignment_of(tensors, problem) == 16);
  tensors[Operand::v].stride_row = 65;
  CHECK(alignment_of(tensors, problem) == 2);
  tensors = packed_tensors(problem);
  tensors[Operand::o].stride_batch = 3;  // of the only batch entry: never used
  CHECK(alignment_of(tensors, problem) == 16);
  // TMA copies no tensor whose strides are negative or have 2^40 bytes.
  tensors[Operand::o].stride_head = -64;
  CHECK(alignment_of(tensors, problem) == 2);
  tensors[Operand::o].stride_head = (std::int64_t{1} << 39) - 64;
  CHECK(alignment_of(tensors, problem) == 16);
  tensors[Operand::o].stride_head = std::int64_t{1} << 39;
  CHECK(alignment_of(tensors, problem) == 2);
}

TEST_CASE("a kernel is compiled once for its dispatch class and launched at every call", "[nogpu]") {
  auto device = std::make_shared<FakeDevice>(h200());
  AttentionRuntime runtime(device);
  AttentionProblem problem = make_problem(DataType::bf16, 2, 4, 1000, 64, MaskKind::causal);
  for (int call = 0; call < 3; ++call) runtime.forward(problem, packed_tensors(problem), nullptr, 0, nullptr);
  CHECK(device->compiled.size() == 1);
  CHECK(device->launched.size() == 3);
  CHECK(argument(*device, Scalar::seq_kv) == 1000);

  // Decoding: the keys grow within a bucket.
  for (std::int64_t keys = 900; keys < 1000; ++keys) {
    problem.seq_kv = keys;
    problem.mask_offset = problem.seq_kv - problem.seq_q;
    runtime.forward(problem, packed_tensors(problem), nullptr, 0, nullptr);
    REQUIRE(argument(*device, Scalar::seq_kv) == keys);
  }
  CHECK(device->compiled.size() == 1);

  // Another scale is an argument, another dtype another kernel.
  problem.softmax_scale = 0.3f;
  runtime.forward(problem, packed_tensors(problem), nullptr, 0, nullptr);
  CHECK(device->compiled.size() == 1);
  problem.dtype = DataType::fp16;
  runtime.forward(problem, packed_tensors(problem), nullptr, 0, nullptr);
  CHECK(device->compiled.size() == 2);
}

TEST_CASE("the element-wise loader serves tensors of lesser alignment", "[nogpu]") {
  auto device = std::make_shared<FakeDevice>(h200());
  AttentionRuntime runtime(device);
  const AttentionProblem problem = make_problem(DataType::bf16, 1, 1, 300, 64);
  Tensors tensors = packed_tensors(problem);
  runtime.forward(problem, tensors, nullptr, 0, nullptr);
  tensors[Operand::v].data = memory + 2;
  runtime.forward(problem, tensors, nullptr, 0, nullptr);
  REQUIRE(device->compiled.size() == 2);
  CHECK(device->compiled[0].source != device->compiled[1].source);
}

TEST_CASE("a config that does not fit the very problem is never launched", "[nogpu]") {
  auto device = std::make_shared<FakeDevice>(h200());
  const std::string whole = "sm80 q128 kv48 w4 st2 even-tiles";
  auto source = std::make_shared<FixedSource>(whole);
  AttentionRuntime runtime(device, source);
  const AttentionProblem fits = make_problem(DataType::bf16, 1, 4, 1536, 64);    // 32 * 48 keys
  const AttentionProblem misfit = make_problem(DataType::bf16, 1, 4, 1280, 64);  // 26.7 * 48
  REQUIRE(dispatch_class(fits) == dispatch_class(misfit));

  CHECK(canonical_text(runtime.prepare(fits)->choice.config) == canonical_text(parse_config(whole)));
  CHECK(runtime.prepare(fits)->choice.origin == ConfigOrigin::exact);
  const auto other = runtime.prepare(misfit);
  CHECK_FALSE(other->choice.config.even_tiles);
  CHECK(other->choice.origin == ConfigOrigin::default_config);

  runtime.forward(fits, packed_tensors(fits), nullptr, 0, nullptr);
  runtime.forward(misfit, packed_tensors(misfit), nullptr, 0, nullptr);
  runtime.forward(fits, packed_tensors(fits), nullptr, 0, nullptr);
  REQUIRE(device->compiled.size() == 2);
  REQUIRE(device->launched.size() == 3);
  CHECK(device->launched[0].entry == device->compiled[0].entry);
  CHECK(device->launched[0].grid_x == device->compiled[0].grid_x(fits));
  CHECK(device->launched[1].grid_x == device->compiled[1].grid_x(misfit));
  CHECK(source->asked == 2);

  const auto prepared = runtime.prepare(fits);
  CHECK_THAT(error_of(ErrorCode::infeasible_config,
                      [&] { runtime.launch(*prepared, misfit, packed_tensors(misfit), nullptr, 0, nullptr); }),
             ContainsSubstring("1280"));
}

TEST_CASE("a kernel that packs heads runs only groups of as many", "[nogpu]") {
  auto device = std::make_shared<FakeDevice>(h200());
  AttentionRuntime runtime(device);
  const auto problem_of = [](std::int64_t heads_q, std::int64_t heads_kv) {
    AttentionProblem problem = make_problem(DataType::bf16, 1, heads_q, 300, 64);
    problem.heads_kv = heads_kv;
    return problem;
  };
  const auto prepared = runtime.prepare(problem_of(8, 2), parse_config("sm90 q128 kv64 st2 pack-gqa"));
  const AttentionProblem other = problem_of(8, 4);
  CHECK_THAT(error_of(ErrorCode::invalid_argument,
                      [&] { runtime.launch(*prepared, other, packed_tensors(other), nullptr, 0, nullptr); }),
             ContainsSubstring("group4"));
}

TEST_CASE("a pick that does not fit or compile gives way to the next, at last to the default, and it is told",
          "[nogpu]") {
  auto device = std::make_shared<FakeDevice>(h200());
  const std::string a = "sm80 q64 kv32 w4 st2", b = "sm80 q64 kv64 w4 st2", c = "sm80 q128 kv32 w4 st2",
                    d = "sm80 q128 kv48 w4 st2", misfit = "sm80 q64 kv32 w4 st2 even-tiles";
  const AttentionProblem problem = make_problem(DataType::bf16, 1, 4, 1000, 64);
  AttentionRuntime runtime(device, std::make_shared<ListSource>(std::vector<std::string>{misfit, a, b, c, d}));
  const std::string standard = canonical_text(default_config(problem, h200()));
  REQUIRE((standard != a && standard != b && standard != c && standard != d));

  SECTION("the next one") {
    device->refused = {a};
    const auto prepared = runtime.prepare(problem);
    CHECK(canonical_text(prepared->choice.config) == b);
    CHECK(prepared->choice.origin == ConfigOrigin::exact);
    CHECK(prepared->choice.detail == "row of " + b + "; " + a + " did not compile");
    CHECK(device->compiled.size() == 1);
    runtime.forward(problem, packed_tensors(problem), nullptr, 0, nullptr);
    CHECK(device->launched.size() == 1);
    // It is not tried again, for another length neither, though it would compile by now.
    device->refused.clear();
    CHECK(canonical_text(runtime.prepare(make_problem(DataType::bf16, 1, 4, 3000, 64))->choice.config) == b);
    CHECK(canonical_text(runtime.prepare(make_problem(DataType::fp16, 1, 4, 1000, 64))->choice.config) == a);
  }
  SECTION("the default after three") {
    device->refused = {a, b, c};
    const auto prepared = runtime.prepare(problem);
    CHECK(canonical_text(prepared->choice.config) == standard);
    CHECK(prepared->choice.origin == ConfigOrigin::default_config);
    CHECK_THAT(prepared->choice.detail, ContainsSubstring(a + ", " + b + ", " + c + " did not compile"));
    CHECK_THAT(prepared->choice.tune_command, ContainsSubstring("attune tune --problem \"" + canonical_text(problem)));
  }
  SECTION("a default that a source prefers gives way as well, and is what is left at the end") {
    struct PreferringSource : ListSource {
      using ListSource::ListSource;
      std::optional<ConfigChoice> find(const AttentionProblem& problem, const DeviceSpec& device,
                                       const std::vector<KernelConfig>& passed_over) override {
        const KernelConfig standard = default_config(problem, device);
        if (std::find(passed_over.begin(), passed_over.end(), standard) == passed_over.end())
          return ConfigChoice{standard, ConfigOrigin::default_config, "preferred", "tune it"};
        return ListSource::find(problem, device, passed_over);
      }
    };
    AttentionRuntime preferring(device, std::make_shared<PreferringSource>(std::vector<std::string>{a}));
    auto prepared = preferring.prepare(problem);
    CHECK(canonical_text(prepared->choice.config) == standard);
    CHECK(prepared->choice.origin == ConfigOrigin::default_config);
    CHECK(prepared->choice.detail == "preferred");
    CHECK(prepared->choice.tune_command == "tune it");

    AttentionRuntime refusing(device, std::make_shared<PreferringSource>(std::vector<std::string>{a}));
    device->refused = {standard};
    prepared = refusing.prepare(problem);
    CHECK(canonical_text(prepared->choice.config) == a);
    CHECK(prepared->choice.detail == "row of " + a + "; " + standard + " did not compile");

    AttentionRuntime refusing_all(device, std::make_shared<PreferringSource>(std::vector<std::string>{a}));
    device->refused = {"sm80", "sm90"};
    CHECK_THAT(error_of(ErrorCode::compile_failed, [&] { refusing_all.prepare(problem); }),
               ContainsSubstring("refused"));
  }
  SECTION("a default that does not compile is an error") {
    device->refused = {"sm80", "sm90"};
    CHECK_THAT(error_of(ErrorCode::compile_failed, [&] { runtime.prepare(problem); }), ContainsSubstring("refused"));
  }
  SECTION("so is anything that is not about the kernel") {
    device->refused = {a};
    device->refusal = ErrorCode::nvrtc_unavailable;
    error_of(ErrorCode::nvrtc_unavailable, [&] { runtime.prepare(problem); });
  }
  SECTION("a source that insists is not asked for ever") {
    device->refused = {a};
    AttentionRuntime stubborn(device, std::make_shared<FixedSource>(a));
    CHECK(stubborn.prepare(problem)->choice.origin == ConfigOrigin::default_config);
  }
}

TEST_CASE("a pick that is passed over is logged with the reason", "[nogpu]") {
  const AttentionProblem problem = make_problem(DataType::bf16, 1, 2, 200, 64);
  const std::string refused = "sm80 q64 kv64 w4 st2", unfit = "sm80 q128 kv64 w4 st2 even-tiles",
                    good = "sm80 q64 kv32 w4 st2";
  const auto device = std::make_shared<FakeDevice>(find_device("a100"));
  device->refused = {refused};
  AttentionRuntime runtime(device, std::make_shared<ListSource>(std::vector<std::string>{unfit, refused, good}));
  std::vector<std::string> heard;
  set_log_sink([&](LogLevel level, std::string_view text) {
    if (level == LogLevel::info) heard.emplace_back(text);
  });
  const auto prepared = runtime.prepare(problem);
  set_log_sink({});
  CHECK(canonical_text(prepared->plan.config) == good);
  REQUIRE(heard.size() >= 2);
  CHECK_THAT(heard[0], ContainsSubstring("the tuned config " + unfit + " is passed over for \"" +
                                         canonical_text(problem) + "\" on fake: it does not fit: "));
  CHECK_THAT(heard[1], ContainsSubstring("the tuned config " + refused + " is passed over") &&
                           ContainsSubstring("it does not compile: refused: " + refused));
}

TEST_CASE("a given config is used, or refused with the reasons", "[nogpu]") {
  auto device = std::make_shared<FakeDevice>(h200());
  AttentionRuntime runtime(device);
  const AttentionProblem problem = make_problem(DataType::bf16, 1, 4, 1000, 128);
  const KernelConfig config = parse_config("sm80 q64 kv32 w4 st2");
  const auto prepared = runtime.prepare(problem, config);
  CHECK(prepared->choice.config == config);
  CHECK(prepared->choice.origin == ConfigOrigin::given);
  runtime.launch(*prepared, problem, packed_tensors(problem), nullptr, 0, nullptr);
  CHECK(device->launched.size() == 1);
  CHECK_THAT(error_of(ErrorCode::infeasible_config,
                      [&] { runtime.prepare(problem, parse_config("sm80 q64 kv32 w4 st2 even-tiles")); }),
             ContainsSubstring("1000"));
  AttentionProblem other = problem;
  other.mask = MaskKind::causal;
  CHECK_THAT(error_of(ErrorCode::invalid_argument,
                      [&] { runtime.launch(*prepared, other, packed_tensors(other), nullptr, 0, nullptr); }),
             ContainsSubstring("causal"));
  Tensors tensors = packed_tensors(problem);
  tensors[Operand::q].data = memory + 2;
  CHECK_THAT(
      error_of(ErrorCode::invalid_argument, [&] { runtime.launch(*prepared, problem, tensors, nullptr, 0, nullptr); }),
      ContainsSubstring("alignment 2"));
  CHECK(device->launched.size() == 1);
}

TEST_CASE("bad calls are refused and name what is wrong", "[nogpu]") {
  auto device = std::make_shared<FakeDevice>(h200());
  AttentionRuntime runtime(device);
  AttentionProblem problem = make_problem(DataType::bf16, 1, 4, 100, 64);
  Tensors tensors = packed_tensors(problem);
  const auto complaint = [&] {
    return error_of(ErrorCode::invalid_argument, [&] { runtime.forward(problem, tensors, nullptr, 0, nullptr); });
  };
  tensors[Operand::v].data = nullptr;
  CHECK_THAT(complaint(), ContainsSubstring("tensor v is a null pointer"));
  tensors = packed_tensors(problem);
  tensors[Operand::o].data = memory + 1;
  CHECK_THAT(complaint(), ContainsSubstring("tensor o starts at an address that is no multiple of 2"));
  tensors = packed_tensors(problem);
  tensors[Operand::lse].data = reinterpret_cast<const void*>(memory + 2);
  CHECK_THAT(complaint(), ContainsSubstring("lse"));
  tensors = packed_tensors(problem);
  problem.head_dim = 65;
  CHECK_THAT(complaint(), ContainsSubstring("65"));
  problem.head_dim = 64;
  problem.heads_kv = 3;
  CHECK_THAT(complaint(), ContainsSubstring("3"));
  CHECK(device->launched.empty());
}

TEST_CASE("a kernel that takes its tiles on demand counts them in the workspace", "[nogpu]") {
  auto device = std::make_shared<FakeDevice>(h200());
  AttentionRuntime runtime(device,
                           std::make_shared<FixedSource>("sm90 q128 kv64 st2 rescale10 scheduler=dynamic-persistent"));
  const AttentionProblem problem = make_problem(DataType::bf16, 4, 16, 4096, 128);
  const Tensors tensors = packed_tensors(problem);
  std::array<std::uint8_t, 12> workspace;
  const auto forward = [&](void* at, std::size_t bytes) {
    workspace.fill(0xff);
    runtime.forward(problem, tensors, at, bytes, nullptr);
  };
  const auto zeros = [&] { return std::count(workspace.begin(), workspace.end(), 0); };
  const auto address = reinterpret_cast<std::uint64_t>(workspace.data());
  REQUIRE(runtime.workspace_bytes(problem) == 4);
  for (const std::size_t bytes : {0, 3}) {
    CHECK_THAT(error_of(ErrorCode::invalid_argument, [&] { forward(bytes == 0 ? nullptr : workspace.data(), bytes); }),
               ContainsSubstring("the workspace holds " + std::to_string(bytes) + " bytes, 4 are needed"));
  }
  CHECK(device->launched.empty());
  forward(workspace.data(), 4);
  CHECK(zeros() == 4);
  CHECK(argument<std::uint64_t>(*device, Workspace{kTileCounter}) == address);
  // The rest of a larger one is left alone.
  forward(workspace.data(), workspace.size());
  CHECK(zeros() == 4);
  CHECK(argument<std::uint64_t>(*device, Workspace{kTileCounter}) == address);
}

TEST_CASE("the size of a workspace does not depend on what is prepared or given meanwhile", "[nogpu]") {
  // Tiles on demand for the longer ones of a class.
  struct LengthSource : ConfigSource {
    std::optional<ConfigChoice> find(const AttentionProblem& problem, const DeviceSpec&,
                                     const std::vector<KernelConfig>&) override {
      const char* const config =
          problem.seq_q > 1500 ? "sm90 q128 kv64 st2 scheduler=dynamic-persistent" : "sm90 q128 kv64 st2";
      return ConfigChoice{parse_config(config), ConfigOrigin::exact, "a test", ""};
    }
  };
  auto device = std::make_shared<FakeDevice>(h200());
  AttentionRuntime runtime(device, std::make_shared<LengthSource>());
  std::uint32_t workspace = 0;
  const AttentionProblem few = make_problem(DataType::bf16, 1, 20, 1026, 64),
                         many = make_problem(DataType::bf16, 1, 20, 1530, 64);
  REQUIRE(dispatch_class(few) == dispatch_class(many));
  const std::size_t bytes = runtime.workspace_bytes(few);
  REQUIRE(bytes <= sizeof(workspace));
  REQUIRE(runtime.prepare(many)->plan.workspace_bytes == 4);
  runtime.forward(few, packed_tensors(few), &workspace, bytes, nullptr);
  CHECK(device->launched.size() == 1);
  CHECK(runtime.workspace_bytes(few) == bytes);

  const AttentionProblem short_one = make_problem(DataType::bf16, 4, 16, 300, 64);
  const auto given = runtime.prepare(short_one, parse_config("sm90 q128 kv64 st2 scheduler=dynamic-persistent"));
  runtime.launch(*given, short_one, packed_tensors(short_one), &workspace, runtime.workspace_bytes(short_one), nullptr);
  CHECK(device->launched.size() == 2);

  // Kernels of sm80 need none.
  AttentionProblem unaligned = many;
  unaligned.alignment = 2;
  CHECK(runtime.workspace_bytes(unaligned) == 0);
  CHECK(AttentionRuntime(std::make_shared<FakeDevice>(find_device("a100"))).workspace_bytes(many) == 0);
}

TEST_CASE("a config that needs more workspace than calls bring is refused, and no pick", "[nogpu]") {
  const AttentionProblem problem = parse_problem("forward bf16 b5 hq10 hkv2 sq571 d240 window=128,0");
  const std::string config =
      "sm90 q128 kv48 st2 order=tile-major rescale2 promote6905 qst2 overlap=within scheduler=static-persistent "
      "cluster2";
  auto device = std::make_shared<FakeDevice>(h200());
  AttentionRuntime runtime(device);
  REQUIRE(infeasibility(problem, parse_config(config), h200()).empty());
  const std::size_t brought = runtime.workspace_bytes(problem);
  const std::string refusal =
      error_of(ErrorCode::infeasible_config, [&] { runtime.prepare(problem, parse_config(config)); });
  CHECK_THAT(refusal, ContainsSubstring("16760832 bytes of workspace") &&
                          ContainsSubstring("brings " + std::to_string(brought)));
  // A plan that somebody generated runs with the workspace that it asks for.
  const auto generated = runtime.prepare(generate(problem, parse_config(config), h200()));
  CHECK(generated->plan.workspace_bytes_of(problem) == 16760832);

  // A row that was tuned so gives way to the next.
  const std::string next = "sm90 q128 kv48 st2";
  AttentionRuntime picking(device, std::make_shared<ListSource>(std::vector<std::string>{config, next}));
  CHECK(picking.prepare(problem)->choice.detail == "row of " + next);

  // Sums of dK and dV, of queries that were split.
  const AttentionProblem gradients = parse_problem("backward bf16 b1 hq8 sq4096 d64");
  REQUIRE(infeasibility(gradients, parse_config("sm80 q64 kv64 w4 st2 query-parts4"), h200()).empty());
  if (generate(gradients, parse_config("sm80 q64 kv64 w4 st2 query-parts4"), h200()).workspace_bytes_of(gradients) >
      runtime.workspace_bytes(gradients)) {
    CHECK_THROWS_AS(runtime.prepare(gradients, parse_config("sm80 q64 kv64 w4 st2 query-parts4")), Error);
  } else {
    FAIL("the parts fit the workspace: this case shows nothing");
  }
}

TEST_CASE("a decoding step whose keys are split needs one plan and one workspace for all lengths of its class",
          "[nogpu]") {
  auto device = std::make_shared<FakeDevice>(h200());
  AttentionRuntime runtime(device);
  AttentionProblem problem = make_problem(DataType::bf16, 1, 32, 1, 128, MaskKind::causal);
  problem.heads_kv = 4;
  const auto with_keys = [&](std::int64_t keys) {
    problem.seq_kv = keys;
    problem.mask_offset = keys - 1;
    return problem;
  };
  const std::size_t bytes = runtime.workspace_bytes(with_keys(6145));
  std::vector<std::byte> storage(bytes + kWorkspaceAlignment);
  void* at = storage.data();
  std::size_t room = storage.size();
  void* const workspace = std::align(kWorkspaceAlignment, bytes, at, room);
  for (const std::int64_t keys : {6145, 6200, 7001, 8191}) {
    const AttentionProblem step = with_keys(keys);
    REQUIRE(runtime.workspace_bytes(step) == bytes);
    runtime.forward(step, packed_tensors(step), workspace, bytes, nullptr);
    const KernelLaunch& main = device->compiled.front();
    const std::int32_t parts = main.split.parts_of(step);
    CHECK(parts > 1);
    CHECK(device->launched.rbegin()[1].grid_x == main.grid_x(step));
    CHECK(device->launched.back().entry == "attune_forward_combine");
    CHECK(argument(*device, Scalar::key_parts) == parts);
    CHECK(argument<std::uint64_t>(*device, Workspace{kPartialO}) ==
          reinterpret_cast<std::uint64_t>(workspace) + runtime.prepare(step)->plan.buffer_offset(kPartialO, step));
  }
  CHECK(device->compiled.size() == 2);
  CHECK(device->launched.size() == 8);
  // A smaller workspace, or one that is not aligned, is refused before anything is launched.
  const AttentionProblem step = with_keys(8000);
  CHECK_THAT(error_of(ErrorCode::invalid_argument,
                      [&] { runtime.forward(step, packed_tensors(step), workspace, 1000, nullptr); }),
             ContainsSubstring("the workspace holds 1000 bytes"));
  CHECK_THAT(
      error_of(
          ErrorCode::invalid_argument,
          [&] { runtime.forward(step, packed_tensors(step), static_cast<std::byte*>(workspace) + 4, bytes, nullptr); }),
      ContainsSubstring("multiple of 256"));
  CHECK(device->launched.size() == 8);
}

TEST_CASE("nothing is compiled while the stream is captured", "[nogpu]") {
  auto device = std::make_shared<FakeDevice>(h200());
  AttentionRuntime runtime(device);
  const AttentionProblem problem = make_problem(DataType::bf16, 1, 4, 100, 64);
  device->capturing = true;
  CHECK(runtime.workspace_bytes(problem) == most_workspace_bytes(problem, h200()));
  CHECK_THAT(
      error_of(ErrorCode::unsupported, [&] { runtime.forward(problem, packed_tensors(problem), nullptr, 0, nullptr); }),
      ContainsSubstring("captured"));
  CHECK(device->compiled.empty());
  runtime.prepare(problem);
  runtime.forward(problem, packed_tensors(problem), nullptr, 0, nullptr);
  CHECK(device->launched.size() == 1);
}

TEST_CASE("many threads share one kernel; runtimes share nothing", "[nogpu]") {
  const AttentionProblem problem = make_problem(DataType::bf16, 1, 4, 100, 64);
  auto device = std::make_shared<FakeDevice>(h200());
  AttentionRuntime runtime(device);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) threads.emplace_back([&] { runtime.prepare(problem); });
  for (std::thread& thread : threads) thread.join();
  CHECK(device->compiled.size() == 1);

  // A runtime that takes a dead one's place in memory must not inherit the thread's last hit.
  for (int i = 0; i < 3; ++i) {
    auto next = std::make_shared<FakeDevice>(h200());
    AttentionRuntime another(next);
    another.forward(problem, packed_tensors(problem), nullptr, 0, nullptr);
    CHECK(next->compiled.size() == 1);
    CHECK(next->launched.size() == 1);
  }
}

TEST_CASE("threads that want different kernels compile side by side, those that want the same one wait", "[nogpu]") {
  constexpr int kProblems = 4, kThreadsOfEach = 3;
  auto device = std::make_shared<FakeDevice>(h200());
  // Nobody leaves the compiler before somebody of each problem has entered it.
  std::mutex mutex;
  std::condition_variable all_inside;
  int inside = 0;
  bool side_by_side = true;
  device->while_compiling = [&](const KernelLaunch&) {
    std::unique_lock lock(mutex);
    ++inside;
    all_inside.notify_all();
    side_by_side &= all_inside.wait_for(lock, std::chrono::seconds(20), [&] { return inside >= kProblems; });
  };
  AttentionRuntime runtime(device);
  std::vector<std::thread> threads;
  std::set<const PreparedAttention*> prepared[kProblems];
  for (int i = 0; i < kProblems * kThreadsOfEach; ++i) {
    threads.emplace_back([&, i] {
      const int which = i % kProblems;
      const auto plan = runtime.prepare(make_problem(DataType::bf16, 1, 4, 100, 64 + 8 * which));
      const std::lock_guard lock(mutex);
      prepared[which].insert(plan.get());
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(side_by_side);
  CHECK(device->compiled.size() == kProblems);
  for (const auto& plans : prepared) CHECK(plans.size() == 1);
}

TEST_CASE("a kernel that does not compile for one thread is tried by the next that waits", "[nogpu]") {
  auto device = std::make_shared<FakeDevice>(h200());
  std::atomic<int> tries{0};
  device->while_compiling = [&](const KernelLaunch&) {
    if (++tries == 1) throw Error(ErrorCode::driver, "out of memory, once");
  };
  AttentionRuntime runtime(device);
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      try {
        runtime.prepare(make_problem(DataType::bf16, 1, 4, 100, 64));
      } catch (const Error&) {
        ++failed;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(failed == 1);
  CHECK(tries == 2);
  CHECK(device->compiled.size() == 1);
}

TEST_CASE("plans that share a kernel class share its code", "[nogpu]") {
  auto device = std::make_shared<FakeDevice>(h200());
  AttentionRuntime runtime(device);
  const KernelConfig config = parse_config("sm80 q64 kv32 w4 st2");
  const auto first = runtime.prepare(make_problem(DataType::bf16, 1, 4, 1000, 64), config);
  const auto second = runtime.prepare(make_problem(DataType::bf16, 3, 8, 5000, 64), config);
  CHECK(device->compiled.size() == 1);
  CHECK(first->kernels[0] == second->kernels[0]);
}

}  // namespace attention_runtime_test
