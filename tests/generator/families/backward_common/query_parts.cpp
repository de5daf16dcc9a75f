#include "generator/families/backward_common/query_parts.h"

#include <algorithm>
#include <string>

#include "generator/config/config_space.h"
#include "generator/families/backward_common/convert.h"
#include "generator/families/backward_common/workspace.h"
#include "generator/families/backward_sm80/defaults.h"
#include "generator/generate.h"
#include "tests/catch.h"
#include "tests/generator/reasons_of.h"

using namespace attune;
using attune::testing::reasons_of;

namespace {

const DeviceSpec& h200() { return find_device("h200"); }

KernelPlan plan_of(const std::string& problem, const std::string& config) {
  return generate(parse_problem(problem), parse_config(config), h200());
}

std::string exact_text(const std::string& problem, const std::string& config) {
  return canonical_text(with_exact_sums(parse_problem(problem), parse_config(config), h200()));
}

}  // namespace

TEST_CASE("parts of the queries are tiles, and their dK and dV are summed as those of a group's heads", "[nogpu]") {
  const std::string problem = "backward b2 hq6 sq4000 skv300 d64";
  for (const char* base : {"sm80 q64 kv64 w4 st2", "sm90 q64 kv64 st2"}) {
    const KernelPlan atomic = plan_of(problem, std::string(base) + " dq=atomic query-parts3");
    REQUIRE(atomic.launches.size() == 4);
    CHECK(atomic.launches[1].grid_x(atomic.problem) == 2 * 6 * 5 * 3);
    CHECK(atomic.buffer_offset(kDkSums, atomic.problem) < atomic.zeroed_bytes_of(atomic.problem));
    CHECK(atomic.ordered_outputs.empty());
    const KernelPlan ordered = plan_of(problem + " deterministic", std::string(base) + " dq=ordered query-parts3");
    CHECK(ordered.buffer_offset(kDkdvTickets, ordered.problem) > 0);
    CHECK(ordered.ordered_outputs.size() == 3);
    // The same plan serves heads that share keys.
    const AttentionProblem grouped = parse_problem("backward b2 hq6 hkv2 sq4000 skv300 d64");
    CHECK(atomic.launches[1].grid_x(grouped) == 2 * 6 * 5 * 3);
    CHECK(atomic.launches[1].source ==
          plan_of(canonical_text(grouped), std::string(base) + " dq=atomic query-parts3").launches[1].source);
  }
}

TEST_CASE("each part counts as a head of a section", "[nogpu]") {
  const AttentionProblem problem = parse_problem("backward b1 hq64 sq65536 skv4096 d128 causal");
  const std::string config = "sm80 q64 kv128 w8 st2 order=l2-sections query-warps2 dq=atomic";
  const auto section_heads = [&](const char* parts) {
    return generate(problem, parse_config(config + parts), h200()).launches[1].section_heads(problem);
  };
  CHECK(section_heads("") == 1);
  CHECK(section_heads(" query-parts64") > 16);
}

TEST_CASE("parts of the queries are refused where another word says as much, and in clusters", "[nogpu]") {
  const std::string problem = "backward hq4 hkv2 sq4096 d128";
  CHECK_THAT(reasons_of(problem, "sm90 q64 kv128 st2 dq=atomic kv-grad-per-query-head query-parts2"),
             ContainsSubstring("parts are of one query head each; leave kv-grad-per-query-head out"));
  CHECK_THAT(reasons_of(problem, "sm80 q64 kv64 w4 st2 kv-grad-per-query-head query-parts2"),
             ContainsSubstring("parts are of one query head each; leave kv-grad-per-query-head out"));
  CHECK_THAT(reasons_of(problem, "sm90 q64 kv128 st2 overlap=within cluster2 dq=atomic query-parts2"),
             ContainsSubstring("leave kv-grad-per-query-head and query-parts out"));
  CHECK_THAT(reasons_of(problem, "sm80 q64 kv64 w4 st2 query-parts5000"),
             ContainsSubstring("query-parts5000: must be"));
  CHECK_THAT(reasons_of("hq4 sq4096 d128", "sm80 q64 kv64 w4 st2 query-parts2"), ContainsSubstring("query-parts"));
  CHECK(reasons_of(problem, "sm80 q64 kv64 w4 st2 query-parts2") == "");
  CHECK(reasons_of(problem, "sm90 q64 kv128 st2 dq=atomic query-parts4000") == "");  // more than blocks
}

TEST_CASE("walks of more than 2^17 queries are split, shorter ones keep their parts where tiles are few", "[nogpu]") {
  const std::string sm90 = "sm90 q64 kv128 st2 dq=atomic", sm80 = "sm80 q64 kv64 w4 st2 dq=atomic";
  CHECK(exact_text("backward sq131072 skv64 d64", sm90) == sm90);
  // A long one among packed sequences decides, not all rows.
  CHECK(exact_text("backward b64 hq8 hkv2 sq131072 d64 packed", sm90) == sm90);
  CHECK(exact_text("backward b64 hq8 hkv2 sq131072 d64 packed lengths=one-long", sm90) ==
        "sm90 q64 kv128 st2 kv-grad-per-query-head dq=atomic");
  CHECK(exact_text("backward b2 hq8 hkv2 sq131072 d64 packed", sm90) ==
        "sm90 q64 kv128 st2 kv-grad-per-query-head dq=atomic");
  CHECK(exact_text("backward sq131073 skv64 d64", sm90) == canonical_text(parse_config(sm90 + " query-parts3")));
  CHECK(exact_text("backward sq1048576 skv64 d64", sm80) == canonical_text(parse_config(sm80 + " query-parts16")));
  // All heads of a group count, until they are apart.
  const std::string apart = " kv-grad-per-query-head";
  CHECK(exact_text("backward hq8 hkv1 sq32768 d64", sm90) == canonical_text(parse_config(sm90 + apart)));
  CHECK(exact_text("backward hq8 hkv1 sq262144 d64", sm90 + apart) ==
        canonical_text(parse_config(sm90 + " query-parts4")));
  // Only queries that see a key count.
  CHECK(exact_text("backward sq1000000 d64 window=1000,0", sm90) == sm90);
  // What was split for another problem stays so where tiles are few, and nowhere else.
  CHECK(exact_text("backward sq65536 skv128 d64", sm90 + " query-parts40") ==
        canonical_text(parse_config(sm90 + " query-parts40")));
  CHECK(exact_text("backward b4 hq16 sq4096 d64", sm90 + " query-parts40") == sm90);
}

TEST_CASE("dQ of queries that see more than 2^17 keys is added by tiles of keys", "[nogpu]") {
  const std::string config = "sm80 q64 kv64 w4 st2";
  CHECK(exact_text("backward sq64 skv131072 d64", config) == config);
  CHECK(exact_text("backward sq64 skv131073 d64", config) == config + " dq=atomic");
  CHECK(exact_text("backward sq64 skv131073 d64 deterministic", config) == config + " dq=ordered");
  for (const char* device : {"a100", "rtx4090", "l4", "h200"}) {
    for (int head_dim = 8; head_dim <= 256; head_dim += 8) {
      AttentionProblem problem = make_problem(DataType::bf16, 1, 2, 64, head_dim);
      problem.pass = Pass::backward;
      problem.seq_kv = 200000;
      INFO(device << " d" << head_dim);
      const KernelConfig standard = backward_sm80_default(problem, find_device(device));
      CHECK(infeasibility(problem, standard, find_device(device)).empty());
      CHECK(standard.dq != DqAccumulation::separate_kernel);
    }
  }
}

TEST_CASE("defaults and searches split long walks, and take no more workspace than is told", "[nogpu]") {
  for (const char* text : {"backward hq8 sq262144 skv512 d128 causal@0", "backward hq8 hkv1 sq65536 skv4096 d64",
                           "backward hq2 sq200000 skv1024 d256 deterministic", "backward hq1 sq1000000 skv8 d16"}) {
    const AttentionProblem problem = parse_problem(text);
    for (const char* name : {"h200", "a100"}) {
      INFO(text << " on " << name);
      const DeviceSpec& device = find_device(name);
      const auto is_exact = [&](const KernelConfig& config) {
        return with_exact_sums(problem, config, device) == config &&
               generate(problem, config, device).workspace_bytes_of(problem) <= most_workspace_bytes(problem, device);
      };
      CHECK(is_exact(default_config(problem, device)));
      int feasible = 0;
      for (const Candidate& candidate : config_space(problem, device, SpaceExtent::reduced)) {
        if (candidate.feasible() && ++feasible % 3 == 0) REQUIRE(is_exact(candidate.config));
      }
      CHECK(feasible > 20);
    }
  }
}

TEST_CASE("queries are split to fill the SMs where tiles of keys are few, and only there", "[nogpu]") {
  const auto parts_of = [](const char* problem) { return default_config(parse_problem(problem), h200()).query_parts; };
  CHECK(parts_of("backward hq4 sq65536 skv128 d128") > 8);
  CHECK(parts_of("backward hq4 sq65536 skv128 d64 deterministic") > 8);
  CHECK(parts_of("backward b4 hq16 sq4096 d128 causal") == 1);
  CHECK(parts_of("backward hq4 sq512 skv128 d128") == 1);
  const auto splits = [](const char* text) {
    const std::vector<Candidate> space = config_space(parse_problem(text), h200(), SpaceExtent::reduced);
    return std::count_if(space.begin(), space.end(), [](const Candidate& each) { return each.config.query_parts > 1; });
  };
  CHECK(splits("backward hq4 sq65536 skv128 d128") > 0);
  CHECK(splits("backward b4 hq16 sq4096 d128 causal") == 0);
  // Sums of dK and dV count for calls that may split alone.
  const std::size_t few = most_workspace_bytes(parse_problem("backward hq4 sq65536 skv128 d128"), h200());
  CHECK(few >= plan_of("backward hq4 sq65536 skv128 d128", "sm90 q64 kv128 st2 dq=ordered query-parts32")
                   .workspace_bytes_of(parse_problem("backward hq4 sq65536 skv128 d128")));
  const AttentionProblem many = parse_problem("backward b4 hq16 sq4096 d128");
  CHECK(most_workspace_bytes(many, h200()) <
        plan_of(canonical_text(many), "sm90 q64 kv128 st2 dq=atomic query-parts2").workspace_bytes_of(many));
}
