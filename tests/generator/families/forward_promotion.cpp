// Forward plans whose sums over long rows leave the tensor cores' accumulators.
#include "generator/config/config_space.h"
#include "generator/families/long_rows.h"
#include "generator/generate.h"
#include "tests/catch.h"
#include "tests/generator/reasons_of.h"

using namespace attune;
using attune::testing::reasons_of;

namespace forward_promotion_test {
namespace {

KernelPlan plan_of(const std::string& problem, const std::string& config) {
  return generate(parse_problem(problem), parse_config(config), find_device("h200"));
}

std::string promoted_text(const std::string& problem, const std::string& config) {
  return canonical_text(promoted_for(parse_problem(problem), parse_config(config)));
}

}  // namespace

TEST_CASE("promoted sums have a place in the workspace, as large whatever the problem", "[nogpu]") {
  const std::string config = "sm90 q128 kv64 st2 scheduler=static-persistent promote1024";
  const KernelPlan plan = plan_of("b2 hq4 sq4096 d72", config);
  REQUIRE(plan.buffers.size() == 1);
  // The sums of 132 CTAs of 128 rows: O, and a maximum and a sum for each of the four threads of a row.
  const std::size_t bytes = 4u * 132 * 128 * (72 + 8);
  CHECK(plan.workspace_bytes_of(plan.problem) == bytes);
  CHECK(plan.zeroed_bytes_of(plan.problem) == 0);
  CHECK(plan.workspace_bytes_of(parse_problem("b64 hq32 sq9999 d72")) == bytes);
  CHECK_THAT(plan.launches[0].source, ContainsSubstring("kPromotionBlocks = 1024"));
  // Behind the number of the next tile, and before the results of parts.
  const KernelPlan parts =
      plan_of("hq4 sq256 skv1000000 d64", "sm90 q64 kv64 st2 parts3 scheduler=dynamic-persistent promote1024");
  REQUIRE(parts.buffers.size() == 3);
  CHECK(parts.zeroed_bytes_of(parts.problem) == 4);
  CHECK(parts.buffer_offset(parts.buffers[0].buffer, parts.problem) == 256);
  CHECK(parts.workspace_bytes_of(parts.problem) <= most_workspace_bytes(parts.problem, find_device("h200")));
  // mma.sync adds in registers.
  const KernelPlan sm80 = plan_of("sq4096 d64", "sm80 q64 kv64 w4 st2 promoted");
  CHECK(sm80.workspace_bytes_of(sm80.problem) == 0);
  CHECK(sm80.launches[0].source != plan_of("sq4096 d64", "sm80 q64 kv64 w4 st2").launches[0].source);
}

TEST_CASE("a promotion is refused where nothing holds its sums", "[nogpu]") {
  const std::string problem = "hq4 sq4096 d64";
  CHECK_THAT(reasons_of(problem, "sm90 q128 kv64 st2 promote8"),
             ContainsSubstring("take scheduler=static-persistent or scheduler=dynamic-persistent"));
  CHECK_THAT(reasons_of(problem, "sm90 q128 kv64 st2 overlap=across scheduler=static-persistent promote8"),
             ContainsSubstring("overlap=within"));
  CHECK_THAT(reasons_of("hq4 sq4096 d16", "sm90 q128 kv32 st1 cta3 scheduler=static-persistent promote8"),
             ContainsSubstring("256 rows of an SM, not of 384"));
  CHECK(reasons_of(problem, "sm90 q128 kv64 st2 scheduler=static-persistent promote8") == "");
  CHECK_THAT(reasons_of("backward hq4 sq4096 d64", "sm80 q64 kv64 w4 st2 promoted"), ContainsSubstring("promoted"));
  CHECK_THAT(reasons_of(problem, "sm90 q128 kv64 st2 scheduler=static-persistent promote9000"),
             ContainsSubstring("promote9000: must be"));
}

TEST_CASE("rows with more than 2^17 keys have their sums promoted, shorter ones never", "[nogpu]") {
  const std::string sm90 = "sm90 q128 kv64 st2 scheduler=static-persistent", sm80 = "sm80 q64 kv64 w4 st2";
  CHECK(promoted_text("sq64 skv131072 d64", sm90) == sm90);
  CHECK(promoted_text("sq64 skv131073 d64", sm90) == canonical_text(parse_config(sm90 + " promote1024")));
  CHECK(promoted_text("sq64 skv131073 d64", sm80) == canonical_text(parse_config(sm80 + " promoted")));
  // Only keys that a row sees count, and of these only a part's.
  CHECK(promoted_text("sq1000000 d64 window=1000,0", sm90) == sm90);
  CHECK(promoted_text("sq1000 skv1000000 d64 causal-top-left", sm90) == sm90);
  CHECK(promoted_text("sq64 skv262144 d64", sm90 + " parts2") == canonical_text(parse_config(sm90 + " parts2")));
  CHECK(promoted_text("sq64 skv262145 d64", sm90 + " parts2") ==
        canonical_text(parse_config(sm90 + " parts2 promote1024")));
  // What was promoted for another problem is not where it need not be.
  CHECK(promoted_text("sq4096 d64", sm90 + " promote7") == sm90);
}

TEST_CASE("promoted sums of 256 rows of an SM are the most workspace of long rows, and no more than that of short ones",
          "[nogpu]") {
  const DeviceSpec& h200 = find_device("h200");
  const AttentionProblem problem = parse_problem("b4 hq16 sq4096 skv131073 d64");
  const KernelConfig config = parse_config("sm90 q128 kv32 st1 scheduler=dynamic-persistent cta2 promote2048");
  CHECK(generate(problem, config, h200).workspace_bytes_of(problem) == most_workspace_bytes(problem, h200));
  CHECK(most_workspace_bytes(parse_problem("b4 hq16 sq4096 skv131072 d64"), h200) == 4);
}

TEST_CASE("defaults and searches promote the sums of long rows", "[nogpu]") {
  for (const char* text : {"hq64 sq262144 d128 causal", "hq64 sq262144 d16", "hq4 sq262144 d256"}) {
    const AttentionProblem problem = parse_problem(text);
    for (const char* name : {"h200", "a100"}) {
      INFO(text << " on " << name);
      const DeviceSpec& device = find_device(name);
      CHECK(default_config(problem, device).promotion_blocks > 0);
      int feasible = 0;
      for (const Candidate& candidate : config_space(problem, device, SpaceExtent::reduced)) {
        if (!candidate.feasible()) continue;
        ++feasible;
        REQUIRE(candidate.config.promotion_blocks > 0);
      }
      CHECK(feasible > 20);
    }
  }
  CHECK(default_config(parse_problem("hq64 sq16384 d128 causal"), find_device("h200")).promotion_blocks == 0);
}

}  // namespace forward_promotion_test
