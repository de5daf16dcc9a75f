// Forward plans that split their keys.
#include <algorithm>
#include <string>
#include <vector>

#include "generator/config/config_space.h"
#include "generator/families/family_word.h"
#include "generator/generate.h"
#include "tests/catch.h"

using namespace attune;

namespace forward_parts_test {
namespace {
KernelPlan plan_of(const char* problem, const char* config, const char* device = "h200") {
  return generate(parse_problem(problem), parse_config(config), find_device(device));
}
std::size_t partial_bytes(std::int64_t rows, std::size_t parts, std::size_t head_dim) {
  const std::size_t o = static_cast<std::size_t>(rows) * parts * head_dim * sizeof(float);
  return (o + 255) / 256 * 256 + static_cast<std::size_t>(rows) * parts * 2 * sizeof(float);
}
}  // namespace

TEST_CASE("a plan of parts has a launch for each part of a tile, one that combines them, and room between", "[nogpu]") {
  for (const char* config : {"sm80 q64 kv64 w4 st2 parts3", "sm90 q64 kv64 st2 parts3"}) {
    const KernelPlan plan = plan_of("b2 hq4 sq100 skv1000 d72", config);
    INFO(config);
    REQUIRE(plan.launches.size() == 2);
    const KernelLaunch &main = plan.launches[0], &combine = plan.launches[1];
    CHECK(main.grid_x(plan.problem) == 2 * 4 * 2 * 3);
    CHECK(main.tiles(plan.problem) == 2 * 4 * 2 * 3);
    CHECK(combine.entry == "attune_forward_combine");
    CHECK(combine.tile_rows == TileRows::following);
    CHECK(combine.grid_x(plan.problem) * combine.rows_per_tile == 2 * 4 * 100);
    CHECK(plan.workspace_bytes_of(plan.problem) == partial_bytes(2 * 4 * 100, 3, 72));
    CHECK(plan.zeroed_bytes_of(plan.problem) == 0);
    CHECK(plan.ordered_outputs == std::vector<Operand>{Operand::o, Operand::lse});
    CHECK(std::get<std::int32_t>(value_of(Scalar::key_parts, plan.problem, main)) == 3);
    CHECK(std::get<std::int32_t>(value_of(Scalar::key_parts, plan.problem, combine)) == 3);
  }
  // Persistent CTAs are as many as before; a counter of tiles stands before the results.
  const KernelPlan persistent =
      plan_of("b2 hq8 sq512 skv8192 d64", "sm90 q64 kv64 st2 scheduler=dynamic-persistent parts4");
  CHECK(persistent.launches[0].grid_x(persistent.problem) == 132);
  CHECK(persistent.launches[0].tiles(persistent.problem) == 2 * 8 * 8 * 4);
  CHECK(persistent.zeroed_bytes_of(persistent.problem) == 4);
  CHECK(persistent.workspace_bytes_of(persistent.problem) == 256 + partial_bytes(2 * 8 * 512, 4, 64));
  CHECK(plan_of("b2 hq4 sq100 skv1000 d72", "sm90 q64 kv64 st2").launches.size() == 1);
}

TEST_CASE("one plan of parts that fill serves keys that grow, and its workspace ends where they fill", "[nogpu]") {
  struct Case {
    const char* config;
    int most_parts;
  };
  for (const auto& [config, most_parts] :
       {Case{"sm80 q16 kv64 w1 st2 parts=fill", 12}, Case{"sm80 q16 kv64 w1 st2 parts=fill pack-gqa", kMostKeyParts},
        Case{"sm90 q64 kv64 st2 pack-gqa parts=fill", 33}}) {
    const KernelPlan plan = plan_of("hq32 hkv4 sq1 skv1 d128", config);
    std::int32_t parts = 0;
    std::size_t bytes = 0;
    AttentionProblem problem = plan.problem;
    const std::size_t most = most_workspace_bytes(problem, find_device("h200"));
    for (std::int64_t keys = 1; keys < 100000; keys += 37) {
      problem.seq_kv = keys;
      const std::int32_t now = plan.launches[0].split.parts_of(problem);
      REQUIRE(now >= parts);
      REQUIRE(plan.workspace_bytes_of(problem) >= bytes);
      REQUIRE(plan.workspace_bytes_of(problem) <= most);
      REQUIRE(most_workspace_bytes(problem, find_device("h200")) == most);
      parts = now;
      bytes = plan.workspace_bytes_of(problem);
    }
    INFO(config);
    CHECK(parts == most_parts);
    CHECK(bytes == partial_bytes(32, static_cast<std::size_t>(parts), 128));
    KernelConfig last = plan.config;
    CHECK(generate(problem, last, find_device("h200")).launches[0].source == plan.launches[0].source);
  }
}

TEST_CASE("parts are refused where tiles are many, and by backward", "[nogpu]") {
  const auto reasons = [](const char* problem, const char* config) {
    std::string text;
    for (const std::string& reason : infeasibility(parse_problem(problem), parse_config(config), find_device("h200")))
      text += reason + "\n";
    return text;
  };
  CHECK(reasons("hq8 sq512 skv8192 d128", "sm90 q64 kv64 st2 parts8").empty());
  CHECK_THAT(reasons("hq8 sq512 skv8192 d128", "sm90 q64 kv64 st2 parts9"),
             ContainsSubstring("parts9: 4096 rows of all heads in 9 parts are more than the 33792 rows") &&
                 ContainsSubstring("take fewer parts"));
  CHECK_THAT(reasons("b4 hq16 sq4096 d128", "sm80 q64 kv64 w4 st2 parts=fill"),
             ContainsSubstring("parts=fill: 262144 rows") && ContainsSubstring("leave the word out"));
  CHECK_THAT(reasons("hq8 sq512 skv8192 d128", "sm90 q64 kv64 st2 parts65"),
             ContainsSubstring("parts65: must be parts=fixed, parts=fill, 1 to 64"));
  CHECK_THAT(reasons("backward hq8 sq512 d128", "sm80 q64 kv64 w4 st2 parts2"), ContainsSubstring("no such choice"));
  // Products that would overflow.
  CHECK_FALSE(reasons("b65536 hq32 sq2000000000 skv100 d8", "sm80 q64 kv64 w4 st2 parts64").empty());
}

TEST_CASE("the default splits keys where tiles leave most of the device idle, and nowhere else", "[nogpu]") {
  const auto parts = [](const char* problem, const char* device) {
    const KernelPlan plan = generate(parse_problem(problem),
                                     default_config(parse_problem(problem), find_device(device)), find_device(device));
    return plan.launches[0].split.parts_of(plan.problem);
  };
  for (const char* device : {"h200", "a100"}) {
    INFO(device);
    for (const char* problem : {"hq8 sq512 skv8192 d128", "hq8 sq512 skv8192 d64 fp16", "hq32 hkv4 sq1 skv8192 d128",
                                "hq32 hkv4 sq1 skv8192 d128 causal", "hq8 hkv8 sq1 skv131072 d64"}) {
      INFO(problem);
      CHECK(parts(problem, device) > 1);
    }
    for (const char* problem : {"b4 hq16 sq4096 d128", "b4 hq16 sq4096 d128 causal", "b16 hq16 sq1024 d64",
                                "b1 hq16 sq16384 d128 causal", "hq1 sq100 d64", "hq8 sq1 skv100 d128"}) {
      INFO(problem);
      CHECK(parts(problem, device) == 1);
    }
  }
}

TEST_CASE("a default with parts is what was measured to be fast with them", "[nogpu]") {
  const auto choice = [](const char* problem, const char* device) {
    return default_config(parse_problem(problem), find_device(device));
  };
  // On Hopper CTAs that stay, and products in a fixed order where there are several warpgroups (docs/notebook).
  CHECK(canonical_text(choice("hq8 sq512 skv8192 d128", "h200")) ==
        "sm90 q128 kv128 st2 rescale10 parts=fill ordered overlap=within scheduler=static-persistent");
  // In one wave sections of heads mean nothing, and the cost model, which picks compare by, takes them for turns.
  const KernelConfig causal = choice("hq8 sq512 skv8192 d128 causal", "h200");
  CHECK(causal.key_parts == kFillParts);
  CHECK(causal.tile_order == TileOrder::head_major_reversed);
  // All heads that share keys in a tile, in parts: both families take as long (11.4 and 11.6 us).
  const KernelConfig decoding = choice("hq32 hkv4 sq1 skv8192 d128", "h200");
  CHECK(decoding.key_parts == kFillParts);
  CHECK(decoding.pack_gqa);
  // They wait for memory: CTAs of one warp, several on an SM, reach more of it than TMA does.
  for (const char* device : {"h200", "a100"}) {
    INFO(device);
    const KernelConfig many = choice("b64 hq32 hkv8 sq1 skv4096 d128", device);
    CHECK(many.family == FamilyWord::sm80);
    CHECK(many.block_q == 16);
    CHECK(many.pack_gqa);
    CHECK(many.key_parts == 1);
  }
  // Parts of fewer keys a step, so that several CTAs of one warp share an SM.
  const KernelConfig small = choice("hq32 hkv4 sq1 skv8192 d128", "a100");
  CHECK(small.key_parts == kFillParts);
  CHECK(small.pack_gqa);
  CHECK(small.block_kv < 128);
}

TEST_CASE("spaces hold parts where tiles are fewer than SMs", "[nogpu]") {
  const auto count = [](const char* problem) {
    const std::vector<Candidate> space =
        config_space(parse_problem(problem), find_device("h200"), SpaceExtent::reduced);
    return std::count_if(space.begin(), space.end(), [](const Candidate& candidate) {
      return candidate.feasible() && candidate.config.key_parts == kFillParts;
    });
  };
  CHECK(count("hq8 sq512 skv8192 d128") > 20);
  CHECK(count("hq32 hkv4 sq1 skv8192 d128") > 20);
  CHECK(count("b4 hq16 sq4096 d128") == 0);
  CHECK(count("hq8 sq512 skv100 d128") == 0);
}

TEST_CASE("the cost model knows what parts save and what they cost", "[nogpu]") {
  const auto cost = [](const char* problem, const std::string& config) {
    return estimate_cost(parse_problem(problem), parse_config(config), find_device("h200")).microseconds;
  };
  for (const std::string config : {"sm80 q64 kv64 w4 st2 rescale10", "sm90 q128 kv64 st2 rescale10 overlap=within"}) {
    INFO(config);
    const char *few = "hq8 sq512 skv8192 d128", *many = "hq33 sq512 skv8192 d128", *brief = "hq8 sq512 skv256 d128";
    CHECK(cost(few, config + " parts=fill") < 0.6 * cost(few, config));
    CHECK(cost(few, config + " parts4") < cost(few, config + " parts2"));
    CHECK(cost(many, config + " parts2") > cost(many, config));
    CHECK(cost(brief, config + " parts2") > cost(brief, config));
  }
}

}  // namespace forward_parts_test
