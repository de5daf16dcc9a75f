#include "generator/backward_sm80_plan.h"

#include <set>
#include <string>
#include <vector>

#include "generator/error.h"
#include "generator/generate.h"
#include "tests/catch.h"

using namespace attune;

namespace {

std::string reasons_of(const char* problem, const char* config, const char* device = "h200") {
  std::string text;
  for (const std::string& reason : infeasibility(parse_problem(problem), parse_config(config), find_device(device)))
    text += reason + "\n";
  return text;
}

}  // namespace

TEST_CASE("a backward problem's text round-trips, and its work is two and a half times forward's", "[nogpu]") {
  const AttentionProblem problem = parse_problem("backward fp16 b2 hq6 hkv2 sq100 skv300 d72 causal");
  CHECK(problem.pass == Pass::backward);
  CHECK(canonical_text(problem) == "backward fp16 b2 hq6 hkv2 sq100 skv300 d72 causal");
  AttentionProblem forward = problem;
  forward.pass = Pass::forward;
  CHECK(count_flops(problem) == 2.5 * count_flops(forward));
  const double rows = 2 * 6 * 100, keys = 2 * 2 * 300;
  CHECK(count_bytes(problem) == 2 * 72 * (4 * rows + 4 * keys) + 4 * rows);
  CHECK(AttentionProblemHash{}(problem) != AttentionProblemHash{}(forward));
}

TEST_CASE("a backward plan: three launches, a row of delta for each query, all outputs ordered", "[nogpu]") {
  const AttentionProblem problem = parse_problem("backward b2 hq6 hkv2 sq100 skv300 d64 causal");
  const KernelPlan plan = generate(problem, parse_config("sm80 q32 kv64 w4 st2"), find_device("a100"));
  REQUIRE(plan.launches.size() == 3);
  CHECK(plan.launches[0].grid_x(problem) == 2 * 6 * 4);
  CHECK(plan.launches[1].grid_x(problem) == 2 * 2 * 5);
  CHECK(plan.launches[1].tile_rows == TileRows::keys);
  CHECK(plan.launches[1].threads == 128);
  CHECK(plan.launches[2].grid_x(problem) == 2 * 6 * 4);
  CHECK(plan.launches[2].threads == 64);
  CHECK(plan.workspace_bytes == 0);
  CHECK(plan.workspace_bytes_of(problem) == 2 * 6 * 100 * sizeof(float));
  CHECK(most_workspace_bytes(problem, find_device("a100")) == plan.workspace_bytes_of(problem));
  CHECK_FALSE(plan.workspace_zeroed);
  CHECK(plan.ordered_outputs == std::vector<Operand>{Operand::d_q, Operand::d_k, Operand::d_v});
}

TEST_CASE("one backward kernel serves all lengths, batches, heads and offsets", "[nogpu]") {
  const KernelConfig config = parse_config("sm80 q32 kv64 w4 st2");
  const auto sources = [&](const char* problem) {
    std::vector<std::string> texts;
    for (const KernelLaunch& launch : generate(parse_problem(problem), config, find_device("a100")).launches)
      texts.push_back(launch.source);
    return texts;
  };
  CHECK(sources("backward b2 hq6 hkv2 sq100 skv300 d64 causal") == sources("backward hq1 sq7 d64 causal@-3"));
}

TEST_CASE("each head dim has a default backward config on each device", "[nogpu]") {
  for (const char* device : {"a100", "rtx4090", "l4", "h200"}) {
    for (int head_dim = 8; head_dim <= 256; head_dim += 8) {
      AttentionProblem problem = make_problem(DataType::bf16, 1, 2, 1000, head_dim);
      problem.pass = Pass::backward;
      INFO(device << " d" << head_dim);
      CHECK(infeasibility(problem, default_config(problem, find_device(device)), find_device(device)).empty());
    }
  }
}

TEST_CASE("configs that no backward kernel serves are refused with reasons", "[nogpu]") {
  CHECK(reasons_of("backward sq100 d64", "sm80 q64 kv64 w4 st2").empty());
  const std::vector<std::pair<const char*, const char*>> refused = {
      {"sm90 q64 kv64 st2", "family sm80 only"},       {"sm80 q64 kv64 w4 st2 qsmem", "leave other words out"},
      {"sm80 q64 kv64 w4 st2 whole", "leave other"},   {"sm80 q40 kv64 w4 st2", "multiple of 16"},
      {"sm80 q64 kv64 w3 st2", "kv must be 48 or 96"}, {"sm80 q64 kv64 w4 st9", "st9"},
      {"sm80 q64 kv64 w4 st2 cta99", "cta99"},
  };
  for (const auto& [config, reason] : refused)
    CHECK_THAT(reasons_of("backward sq100 d64", config), ContainsSubstring(reason));
  CHECK_THAT(reasons_of("backward sq100 d256", "sm80 q128 kv64 w4 st2"), ContainsSubstring("shared memory"));
  CHECK_THAT(reasons_of("backward sq100 d256", "sm80 q128 kv64 w4 st1"), ContainsSubstring("registers"));
}

TEST_CASE("backward's templates are no part of what forward times are valid by", "[nogpu]") {
  std::map<std::string, std::string> texts = TemplateSet::embedded().texts();
  std::size_t erased = 0;
  for (auto it = texts.begin(); it != texts.end();) {
    const bool of_backward = it->first.starts_with("backward/") || it->first.starts_with("kernels/backward") ||
                             it->first.starts_with("primitives/single");
    erased += of_backward;
    it = of_backward ? texts.erase(it) : std::next(it);
  }
  CHECK(erased == 10);
  const TemplateSet without(texts);
  for (const KernelFamily family : {KernelFamily::sm80, KernelFamily::sm90})
    CHECK(templates_hash(family, without) == templates_hash(family));
}
