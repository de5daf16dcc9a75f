// Which plan a call finds: of problems that share all buckets, only one whose source is the same.
#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "attune/attention.h"
#include "generator/generate.h"
#include "generator/problem/dispatch_class.h"
#include "runtime/cuda/kernel_source.h"
#include "tests/catch.h"
#include "tests/generator/random_values.h"
#include "tests/runtime/fake_device.h"

using namespace attune;
using attune::testing::FakeDevice;

namespace {

// A random problem and others that share its buckets, or nearly: each differs in something that plans may depend on.
std::vector<AttentionProblem> relatives(RandomValues& random) {
  AttentionProblem base = random.problem();
  base.seq_q = random.between(2, 3000);
  base.seq_kv = random.coin() ? base.seq_q : random.between(2, 3000);
  if (random.coin()) base.pass = Pass::backward;
  base.mask = MaskKind::none;
  base.mask_offset = base.first_offset = 0;
  std::vector<AttentionProblem> made;
  const auto add = [&](auto change) {
    AttentionProblem other = base;
    change(other);
    validate(other);
    made.push_back(other);
  };
  const auto with_window = [&](std::int64_t left, std::int64_t right) {
    add([&](AttentionProblem& p) { apply_window(left, right, bottom_right_offset(p), &p); });
  };
  add([](AttentionProblem&) {});
  add([](AttentionProblem& p) { p.seq_q -= p.seq_q / 9; });
  for (const std::int64_t offset : {bottom_right_offset(base), std::int64_t{0}, base.seq_kv / 3}) {
    add([&](AttentionProblem& p) {
      p.mask = MaskKind::causal;
      p.mask_offset = offset;
    });
  }
  const std::int64_t longest = std::max(base.seq_q, base.seq_kv);
  for (const std::int64_t left : {longest - 2, longest - longest / 9, longest / 2}) {
    with_window(left, 0);
    with_window(left, -1);
    with_window(left, longest - longest / 7);
  }
  add([](AttentionProblem& p) {  // hides nothing
    p.mask = MaskKind::window;
    p.first_offset = -p.seq_q;
    p.mask_offset = kOpenDiagonal;
  });
  add([](AttentionProblem& p) { p.alignment = 18 - p.alignment; });
  add([](AttentionProblem& p) { p.dtype = p.dtype == DataType::bf16 ? DataType::fp16 : DataType::bf16; });
  add([](AttentionProblem& p) { p.heads_kv = p.heads_q; });
  add([](AttentionProblem& p) { p.softmax_scale *= 2; });
  add([](AttentionProblem& p) { p.deterministic = p.pass == Pass::backward; });
  add([](AttentionProblem& p) { p.invariant = !p.invariant; });
  if (base.pass == Pass::forward) {
    add([](AttentionProblem& p) { p.softcap = p.softcap == 0 ? 20 : 0; });
    add([](AttentionProblem& p) { p.softcap += 7; });
  }
  return made;
}

// What a frozen call takes for any problem.
struct ExactDefaults final : ConfigSource {
  std::optional<ConfigChoice> find(const AttentionProblem& problem, const DeviceSpec& device,
                                   const std::vector<KernelConfig>&) override {
    return ConfigChoice{default_config(problem, device), ConfigOrigin::exact, "", ""};
  }
  bool frozen() const override { return true; }
};

struct AllKernels final : KernelSource {
  std::optional<PackedKernel> find(const KernelLaunch&) const override { return PackedKernel(); }
  bool has(const KernelLaunch&) const override { return true; }
};

void check_plans(const std::vector<AttentionProblem>& problems, const std::shared_ptr<ConfigSource>& source,
                 const char* device_name) {
  const DeviceSpec& device = find_device(device_name);
  AttentionRuntime runtime(std::make_shared<FakeDevice>(device), source);
  for (const AttentionProblem& asked : problems) {
    const auto found = runtime.prepare(asked);
    const AttentionProblem problem = simplest_mask(asked);
    INFO(canonical_text(problem) << " is answered by what was prepared for " << canonical_text(found->plan.problem));
    REQUIRE(found->plan.kernel_class == kernel_class(problem, found->plan.config));
    REQUIRE(infeasibility(problem, found->plan.config, device).empty());
    if (found->plan.problem == problem) continue;
    const KernelPlan own = generate(problem, found->plan.config, device);
    REQUIRE(found->plan.source_hash() == own.source_hash());
  }
}

}  // namespace

TEST_CASE("problems of one dispatch class have the same source with any config", "[nogpu]") {
  RandomValues random(48);
  const KernelConfig plain = parse_config("sm80"), packs = parse_config("sm90 pack-gqa");
  int same = 0, other = 0;
  for (int i = 0; i < 500; ++i) {
    const std::vector<AttentionProblem> problems = relatives(random);
    for (const AttentionProblem& a : problems) {
      for (const AttentionProblem& b : problems) {
        if (&a == &b) continue;
        INFO(canonical_text(a) << " and " << canonical_text(b));
        if (dispatch_class(a) == dispatch_class(b)) {
          ++same;
          REQUIRE(kernel_class(a, plain) == kernel_class(b, plain));
          REQUIRE(kernel_class(a, packs) == kernel_class(b, packs));
          REQUIRE(DispatchClassHash()(dispatch_class(a)) == DispatchClassHash()(dispatch_class(b)));
        } else {
          ++other;
        }
        for (const KernelConfig& config : {plain, packs})
          REQUIRE(same_source(a, b, config) == (kernel_class(a, config) == kernel_class(b, config)));
      }
    }
  }
  CHECK(same > 5000);
  CHECK(other > 5000);
}

TEST_CASE("a call finds no plan of another source, whatever was called before", "[nogpu]") {
  RandomValues random(480);
  for (int i = 0; i < 40; ++i) {
    std::vector<AttentionProblem> problems = relatives(random);
    const char* const device = i % 2 == 0 ? "h200" : "a100";
    check_plans(problems, nullptr, device);
    std::reverse(problems.begin(), problems.end());
    check_plans(problems, nullptr, device);
  }
}

TEST_CASE("a frozen call finds no plan of another source, whatever was called before", "[nogpu]") {
  set_kernel_source(std::make_shared<AllKernels>());
  RandomValues random(4800);
  for (int i = 0; i < 10; ++i) {
    std::vector<AttentionProblem> problems = relatives(random);
    check_plans(problems, std::make_shared<ExactDefaults>(), "h200");
    std::reverse(problems.begin(), problems.end());
    check_plans(problems, std::make_shared<ExactDefaults>(), "h200");
  }
  set_kernel_source(nullptr);
}
