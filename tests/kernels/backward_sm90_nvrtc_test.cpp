// What NVRTC says of the backward kernels of wgmma, without a GPU: spills, and wgmma that waits.
#include <fmt/format.h>

#include <iterator>
#include <string>
#include <utility>

#include "generator/generate.h"
#include "generator/problem/mask_geometry.h"
#include "tests/catch.h"
#include "tests/kernels/compiled_resources.h"

namespace attune::tests {
namespace {

struct Compiled {
  int head_dim;
  const char* config;  // without the way to dQ
  int most_spilled = 0;
};

// Head dims and the configs that would serve them. What is spilled lies outside the loop over blocks, but for a few
// numbers at each of them.
constexpr Compiled kCompiled[] = {
    {8, "sm90 q128 kv128 st2 overlap=within"},
    {16, "sm90 q128 kv128 st2 ordered overlap=queued"},
    {32, "sm90 q128 kv128 st2 overlap=within"},
    {40, "sm90 q128 kv128 st2 overlap=within", 8},
    {64, "sm90 q128 kv128 st2 ordered overlap=within", 60},
    {64, "sm90 q64 kv192 st2", 68},
    {64, "sm90 q64 kv128 st2 overlap=queued"},
    {72, "sm90 q64 kv128 st2 overlap=within"},
    {80, "sm90 q64 kv128 st2 overlap=queued"},
    {96, "sm90 q64 kv128 st2 overlap=within"},
    {104, "sm90 q64 kv128 st2 overlap=within"},
    {112, "sm90 q64 kv128 st2 overlap=queued"},
    {120, "sm90 q64 kv128 st2 overlap=queued"},
    {128, "sm90 q64 kv128 st3 overlap=within", 60},
    {128, "sm90 q64 kv128 st3 overlap=queued fused-convert", 64},
    {136, "sm90 q64 kv64 st2 overlap=within split-dkdv"},
    {152, "sm90 q64 kv64 st3 dsst1"},
    {160, "sm90 q64 kv64 st2 overlap=within split-dkdv"},
    {176, "sm90 q64 kv64 st3 dsst1", 200},
    {192, "sm90 q64 kv64 st2 overlap=within split-dkdv"},
    {224, "sm90 q64 kv64 st2 overlap=within dost1 split-dkdv", 56},
    {256, "sm90 q64 kv64 st2 overlap=within dost1 split-dkdv", 208},
};

constexpr MaskKind kMasks[] = {MaskKind::none, MaskKind::causal};

// No wgmma serialized, and no more spilled than is known.
void check_compiled(const AttentionProblem& problem, const std::string& config, int most_spilled) {
  const KernelPlan plan = generate(problem, parse_config(config), find_device("h200"));
  INFO(canonical_text(problem) << " | " << config);
  const KernelResources& resources = compiled_resources(plan.launches[1]);
  CHECK(resources.spill_bytes <= most_spilled);
  CHECK(resources.advisories.empty());
}

AttentionProblem compiled_problem(int head_dim, MaskKind mask) {
  AttentionProblem problem = make_problem(DataType::bf16, 1, 8, 1000, head_dim, mask);
  problem.pass = Pass::backward;
  return problem;
}

template <std::size_t kRows>
void check_masks(const Compiled (&rows)[kRows], const std::string& words) {
  CaseDraw draw = compiled_draw();
  for (const Compiled& row : rows) {
    for (const MaskKind mask : kMasks) {
      if (draw.takes_next()) check_compiled(compiled_problem(row.head_dim, mask), row.config + words, row.most_spilled);
    }
  }
}

void check_head_dims() {
  CaseDraw draw = compiled_draw();
  for (const auto& [head_dim, config, most_spilled] : kCompiled) {
    for (const MaskKind mask : kMasks) {
      if (!draw.takes_next()) continue;
      AttentionProblem problem = compiled_problem(head_dim, mask);
      problem.dtype = head_dim % 16 == 8 ? DataType::fp16 : DataType::bf16;
      problem.heads_kv = 1;
      check_compiled(
          problem,
          std::string(config) + (mask == MaskKind::causal ? " dq=ordered kv-grad-per-query-head" : " dq=atomic"),
          most_spilled);
    }
  }
}

constexpr Compiled kShared[] = {{64, "sm90 q128 kv128 st3 order=l2-sections ordered overlap=within ticket2 early9", 72},
                                {96, "sm90 q64 kv128 st3 order=l2-sections ordered overlap=within ticket3 early8"},
                                {128, "sm90 q64 kv128 st3 order=l2-sections ordered overlap=within ticket4 early8"},
                                {160, "sm90 q64 kv64 st3 order=l2-sections dsst1 ticket2", 48},
                                {256, "sm90 q64 kv64 st2 order=l2-sections dsst1 split-dkdv ticket2"}};

void check_shared_tickets() {
  CaseDraw draw = compiled_draw();
  for (const Compiled& row : kShared) {
    for (const MaskKind mask : kMasks) {
      if (!draw.takes_next()) continue;
      AttentionProblem problem = make_problem(DataType::bf16, 4, 8, 4096, row.head_dim, mask);
      problem.pass = Pass::backward;
      problem.deterministic = true;
      check_compiled(problem, std::string(row.config) + " dq=ordered", row.most_spilled);
    }
  }
}

constexpr Compiled kBySoftmax[] = {
    {64, "sm90 q128 kv128 st2 ordered overlap=within", 16}, {64, "sm90 q112 kv128 st2 ordered overlap=queued", 24},
    {96, "sm90 q80 kv128 st2 ordered overlap=queued", 16},  {128, "sm90 q80 kv128 st2 overlap=within", 16},
    {128, "sm90 q64 kv128 st2 ordered overlap=within", 16}, {128, "sm90 q64 kv128 st2 ordered overlap=queued", 16}};

// 128 queries at head dim 64 spill as much with adds from registers.
constexpr Compiled kBulk[] = {
    {64, "sm90 q64 kv128 st3 overlap=within"},          {64, "sm90 q128 kv128 st3 ordered overlap=within dsst1", 52},
    {128, "sm90 q64 kv128 st3 ordered overlap=within"}, {128, "sm90 q64 kv128 st3 ordered overlap=queued"},
    {256, "sm90 q64 kv64 st2 split-dkdv p-in-ds"},      {256, "sm90 q64 kv64 st2 polled-loads split-dkdv p-in-ds"}};

constexpr Compiled kTogether[] = {
    {104, "sm90 q64 kv128 st2 overlap=within cluster2", 40},
    {128, "sm90 q64 kv128 st2 overlap=within cluster2", 40},
    {128, "sm90 q64 kv128 st2 overlap=queued cluster2", 40},
    {256, "sm90 q64 kv64 st2 dost1 overlap=within split-dkdv cluster2", 200},
    {256, "sm90 q64 kv64 st1 split-dkdv cluster2", 150},
    {256, "sm90 q64 kv64 st2 dsst1 split-dkdv cluster2 polled-loads p-in-ds", 150},
    // Where they stand in the rings is kept from tile to tile.
    {64, "sm90 q128 kv128 st2 ordered overlap=within scheduler=static-persistent", 80},
    {64, "sm90 q64 kv128 st3 overlap=within dsst1 scheduler=dynamic-persistent", 16},
    {64, "sm90 q128 kv128 st2 ordered overlap=within dq-by=softmax scheduler=dynamic-persistent", 80},
    {128, "sm90 q64 kv128 st3 ordered overlap=within scheduler=dynamic-persistent", 16},
    {256, "sm90 q64 kv64 st2 polled-loads split-dkdv scheduler=dynamic-persistent", 16},
    {128, "sm90 q64 kv128 st3 overlap=queued scheduler=static-persistent", 232},
    {256, "sm90 q64 kv64 st2 dost1 overlap=within split-dkdv scheduler=static-persistent", 420}};

TEST_CASE("NVRTC compiles sm90 backward kernels with tiles of tensors of pairs: no wgmma serialized, hardly a spill",
          "[nvrtc]") {
  CaseDraw draw = compiled_draw();
  struct WithPairs {
    const char *words, *config;
    int most_spilled = 0;
  };
  constexpr WithPairs kWithPairs[] = {
      {"d128 bias=1hqk", "sm90 q64 kv128 st2 ordered overlap=within pst2 dq=atomic"},
      {"d128 causal bias=1hqk", "sm90 q64 kv128 st2 overlap=queued pst2 dq=atomic"},
      {"d128 attention-mask=b1qk", "sm90 q64 kv128 st2 overlap=within pst2 dq=atomic", 32},
      {"d64 bias=1hqk", "sm90 q64 kv128 st3 ordered overlap=within pst3 dq=atomic early8"},
      {"d64 causal bias=1hqk alibi", "sm90 q64 kv128 st3 ordered overlap=within pst3 dq=atomic"},
      {"d128 attention-mask=b1qk",
       "sm90 q64 kv128 st2 overlap=queued pst2 dq=atomic dq-by=softmax dq-adds=bulk visible-blocks"},
      {"d64 attention-mask=b1qk", "sm90 q64 kv128 st3 ordered overlap=within pst3 dq=atomic early8 visible-blocks"},
      {"d64 attention-mask=b1qk", "sm90 q64 kv128 st3 ordered overlap=within pst3 dq=atomic early8"}};
  for (const auto& [words, config, most_spilled] : kWithPairs) {
    if (!draw.takes_next()) continue;
    check_compiled(parse_problem(std::string("backward bf16 b1 hq2 sq1000 ") + words), config, most_spilled);
  }
}

TEST_CASE("NVRTC compiles sm90 backward kernels with dropout: no wgmma serialized, no spill", "[nvrtc]") {
  CaseDraw draw = compiled_draw();
  constexpr std::pair<const char*, const char*> kCompiled[] = {
      {"d128 causal", "sm90 q64 kv128 st3 order=l2-sections ordered dq=atomic dq-adds=bulk early8"},
      {"d128", "sm90 q64 kv128 st2 overlap=within dq-by=softmax dq=atomic"},
      {"d128 causal softcap20", "sm90 q64 kv128 st2 overlap=queued ordered dq-by=softmax dq=atomic"},
      {"d64 causal", "sm90 q64 kv128 st3 overlap=queued dq=atomic"},
      {"d64 softcap20", "sm90 q64 kv128 st3 overlap=within ordered dq=atomic early8"},
      {"d192 causal", "sm90 q64 kv64 st2 dq=atomic split-dkdv"},
      {"d256", "sm90 q64 kv64 st2 dq=atomic polled-loads split-dkdv dk-first"}};
  for (const char* dropout : {" dropout0.1", " dropout0.01"}) {
    for (const auto& [words, config] : kCompiled)
      if (draw.takes_next())
        check_compiled(parse_problem(std::string("backward bf16 b4 hq8 sq4096 ") + words + dropout), config, 0);
  }
}

// With a window the two threads that load spill a number or two, which they read once for many tiles.
TEST_CASE("NVRTC compiles the gradient of a bias on wgmma: no wgmma serialized, hardly a spill", "[nvrtc]") {
  CaseDraw draw = compiled_draw();
  for (const char* head_dim : {"d64", "d128", "d256"}) {
    for (const char* words :
         {"bias=1hqk", "causal bias=bhqk", "bias=1hqk attention-mask=b11k", "causal bias=1hqk bias-fp32 softcap20",
          "window=500,100 bias=1hqk attention-mask=b1qk alibi", "causal bias=1hqk attention-mask=b1qk used"}) {
      if (!draw.takes_next()) continue;
      const AttentionProblem problem =
          parse_problem(fmt::format("backward bf16 b4 hq8 sq4096 {} {} bias-gradient", head_dim, words));
      const KernelPlan plan =
          generate(problem, parse_config("sm90 q64 kv64 st1 dsst1 split-dkdv dq=atomic"), find_device("h200"));
      INFO(canonical_text(problem));
      const KernelLaunch& launch = plan.launches.back();
      REQUIRE(launch.tile_rows == TileRows::pairs);
      const KernelResources& resources = compiled_resources(launch);
      CHECK(resources.spill_bytes <= (hides_first_keys(problem.mask) ? 16 : 0));
      CHECK(resources.advisories.empty());
    }
  }
}

TEST_CASE("NVRTC compiles sm90 backward kernels of all head dims: no wgmma serialized, hardly a spill", "[nvrtc]") {
  check_head_dims();
}

TEST_CASE("NVRTC compiles sm90 backward kernels whose blocks share tickets: no wgmma serialized, hardly a spill",
          "[nvrtc]") {
  check_shared_tickets();
}

TEST_CASE("NVRTC compiles sm90 backward kernels with dQ by the softmax warpgroups: no wgmma serialized, hardly a spill",
          "[nvrtc]") {
  check_masks(kBySoftmax, " dq=atomic dq-by=softmax");
  check_masks(kBySoftmax, " dq=atomic dq-by=softmax dq-adds=bulk");
}

TEST_CASE("NVRTC compiles sm90 backward kernels with adds by bulk reductions: no wgmma serialized, hardly a spill",
          "[nvrtc]") {
  check_masks(kBulk, " dq=atomic dq-adds=bulk");
}

TEST_CASE(
    "NVRTC compiles sm90 backward kernels of pairs of CTAs and persistent ones: no wgmma serialized, hardly a spill",
    "[nvrtc]") {
  check_masks(kTogether, " dq=atomic");
}

}  // namespace
}  // namespace attune::tests
