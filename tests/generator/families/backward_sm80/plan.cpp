#include "generator/families/backward_sm80/plan.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "generator/error.h"
#include "generator/families/backward_common/convert.h"
#include "generator/families/backward_common/delta.h"
#include "generator/families/backward_common/workspace.h"
#include "generator/generate.h"
#include "generator/problem/dispatch_class.h"
#include "tests/catch.h"
#include "tests/generator/reasons_of.h"

using namespace attune;
using attune::testing::reasons_of;

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

TEST_CASE("a deterministic problem is another one, and not every backward config answers it", "[nogpu]") {
  const AttentionProblem problem = parse_problem("deterministic backward b2 hq6 sq100 d64");
  CHECK(canonical_text(problem) == "backward bf16 b2 hq6 sq100 d64 deterministic");
  AttentionProblem free = problem;
  free.deterministic = false;
  CHECK(AttentionProblemHash{}(problem) != AttentionProblemHash{}(free));
  CHECK(dispatch_class(problem).representative.deterministic);
  for (const char* config : {"sm80 q64 kv64 w4 st2", "sm80 q64 kv64 w4 st2 dq=atomic"})
    CHECK(kernel_class(problem, parse_config(config)) == kernel_class(free, parse_config(config)));
  CHECK(reasons_of("backward sq100 d64", "sm80 q64 kv64 w4 st2 dq=atomic").empty());
  CHECK_THAT(reasons_of("backward sq100 d64 deterministic", "sm80 q64 kv64 w4 st2 dq=atomic"),
             ContainsSubstring("dq=atomic deterministic: adds as they come"));
  for (int head_dim = 8; head_dim <= 256; head_dim += 8) {
    AttentionProblem each = problem;
    each.head_dim = head_dim;
    const KernelPlan plan = generate(each, default_config(each, find_device("h200")), find_device("h200"));
    CHECK(plan.ordered_outputs.size() == 3);
  }
}

TEST_CASE("a backward plan with a kernel of its own for dQ: all outputs ordered, nothing zeroed", "[nogpu]") {
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
  CHECK(plan.workspace_bytes_of(problem) == 2 * 6 * 128 * 2 * sizeof(float));  // in blocks of 32 queries
  CHECK(plan.zeroed_bytes_of(problem) == 0);
  CHECK(plan.ordered_outputs == std::vector<Operand>{Operand::d_k, Operand::d_v, Operand::d_q});
}

TEST_CASE("a backward plan with sums of dQ: they are zeroed, and dQ is not ordered", "[nogpu]") {
  const AttentionProblem problem = parse_problem("backward b2 hq6 hkv2 sq100 skv300 d72 causal");
  const KernelPlan plan = generate(problem, parse_config("sm80 q32 kv64 w4 st2 dq=atomic"), find_device("a100"));
  REQUIRE(plan.launches.size() == 3);
  CHECK(plan.launches[2].entry == "attune_backward_convert");
  CHECK(plan.launches[2].grid_x(problem) == 2 * 6 * 4);
  const std::size_t rows = 2 * 6 * 128;
  CHECK(plan.buffer_offset(kDqSums, problem) == 0);
  CHECK(plan.zeroed_bytes_of(problem) == rows * 72 * sizeof(float));
  CHECK(plan.buffer_offset(kStatistics, problem) % kWorkspaceAlignment == 0);
  CHECK(plan.workspace_bytes_of(problem) == rows * (72 + 2) * sizeof(float));
  CHECK_THROWS_AS(plan.buffer_offset(kDqTickets, problem), Error);
  CHECK(plan.ordered_outputs == std::vector<Operand>{Operand::d_k, Operand::d_v});
}

TEST_CASE("a backward plan with ordered sums of dQ: tickets and the number of tiles taken are zeroed too", "[nogpu]") {
  const AttentionProblem problem = parse_problem("backward b2 hq6 hkv2 sq100 skv300 d72 causal");
  const KernelPlan plan = generate(problem, parse_config("sm80 q32 kv64 w4 st2 dq=ordered"), find_device("a100"));
  const std::size_t rows = 2 * 6 * 128, turns = plan.buffer_offset(kDqTickets, problem);
  CHECK(plan.buffer_offset(kDqSums, problem) > kTileCounterOffset);
  CHECK(turns >= plan.buffer_offset(kDqSums, problem) + rows * 72 * sizeof(float));
  CHECK(plan.zeroed_bytes_of(problem) == turns + rows / 32 * sizeof(std::uint32_t));
  CHECK(plan.buffer_offset(kStatistics, problem) >= plan.zeroed_bytes_of(problem));
  CHECK(plan.ordered_outputs == std::vector<Operand>{Operand::d_k, Operand::d_v, Operand::d_q});
}

TEST_CASE("a backward plan with heads apart: tiles for each query head, and sums of dK and dV", "[nogpu]") {
  const AttentionProblem problem = parse_problem("backward b2 hq6 hkv2 sq100 skv300 d72 causal");
  const std::size_t keys = 2 * 2 * 320, queries = 2 * 6 * 128;  // in tiles of 64 keys and blocks of 32 queries
  const std::string base = "sm80 q32 kv64 w4 st2 kv-grad-per-query-head";
  const auto plan_of = [&](const char* dq) { return generate(problem, parse_config(base + dq), find_device("a100")); };
  const auto names_of = [](const KernelPlan& plan) {
    std::vector<std::string> names;
    for (const KernelLaunch& launch : plan.launches) names.push_back(launch.entry);
    return names;
  };
  const auto uses = [](const KernelLaunch& launch, KernelArgument argument) {
    const std::vector<KernelArgument>& fields = launch.arguments.fields;
    return std::find(fields.begin(), fields.end(), argument) != fields.end();
  };

  const KernelPlan atomic = plan_of(" dq=atomic");
  CHECK(names_of(atomic) == std::vector<std::string>{"attune_backward_delta", "attune_backward_dkdv_sm80",
                                                     "attune_backward_convert", "attune_backward_convert_keys"});
  CHECK(atomic.launches[1].grid_x(problem) == 2 * 6 * 5);
  CHECK(atomic.launches[3].grid_x(problem) == 2 * 2 * 5);
  CHECK_FALSE(uses(atomic.launches[1], Pointer{Operand::d_k}));
  CHECK_FALSE(uses(atomic.launches[1], Workspace{kTileCounter}));
  CHECK(atomic.ordered_outputs.empty());
  CHECK(atomic.buffer_offset(kDkSums, problem) == queries * 72 * sizeof(float));
  CHECK(atomic.zeroed_bytes_of(problem) == (queries + 2 * keys) * 72 * sizeof(float));
  CHECK(atomic.workspace_bytes_of(problem) == atomic.zeroed_bytes_of(problem) + queries * 2 * sizeof(float));
  CHECK_THROWS_AS(atomic.buffer_offset(kDkdvTickets, problem), Error);

  const KernelPlan own = plan_of("");
  CHECK(names_of(own) == std::vector<std::string>{"attune_backward_delta", "attune_backward_dkdv_sm80",
                                                  "attune_backward_dq_sm80", "attune_backward_convert_keys"});
  CHECK(uses(own.launches[1], Workspace{kTileCounter}));
  CHECK_FALSE(uses(own.launches[1], Workspace{kDqTickets}));
  CHECK(own.buffer_offset(kDkSums, problem) > kTileCounterOffset);
  CHECK(own.zeroed_bytes_of(problem) == own.buffer_offset(kDkdvTickets, problem) + keys / 64 * sizeof(std::uint32_t));
  CHECK(own.ordered_outputs.size() == 3);
  // The number of a tile has a place of its own: no scores lie in shared memory.
  const std::size_t together =
      generate(problem, parse_config("sm80 q32 kv64 w4 st2"), find_device("a100")).launches[1].shared_bytes;
  CHECK(own.launches[1].shared_bytes == together + 16);

  const KernelPlan ordered = plan_of(" dq=ordered");
  CHECK(ordered.launches.size() == 4);
  CHECK(uses(ordered.launches[1], Workspace{kDqTickets}));
  CHECK(uses(ordered.launches[1], Workspace{kDkdvTickets}));
  CHECK(ordered.buffer_offset(kDqTickets, problem) > ordered.buffer_offset(kDvSums, problem));
  CHECK(ordered.buffer_offset(kStatistics, problem) >= ordered.zeroed_bytes_of(problem));
  CHECK(ordered.ordered_outputs.size() == 3);
}

TEST_CASE("most_workspace_bytes() of a backward problem is enough for every block of queries", "[nogpu]") {
  for (const char* text : {"backward b2 hq6 hkv2 sq1 d8", "backward hq3 sq129 d64", "backward hq2 sq4096 d64",
                           "backward hq2 hkv1 sq1 skv257 d8"}) {
    const AttentionProblem problem = parse_problem(text);
    for (int block_q = 16; block_q <= 128; block_q += 16) {
      for (const char* rest : {" kv32 w2 st1", " kv256 w8 st1", " kv16 w1 st1"}) {
        for (const DqAccumulation dq :
             {DqAccumulation::separate_kernel, DqAccumulation::atomic, DqAccumulation::ordered}) {
          for (const bool apart : {false, true}) {
            KernelConfig config = parse_config("sm80 q" + std::to_string(block_q) + rest);
            config.dq = dq;
            config.kv_grad_per_query_head = apart;
            if (!infeasibility(problem, config, find_device("a100")).empty()) continue;
            const KernelPlan plan = generate(problem, config, find_device("a100"));
            CHECK(plan.workspace_bytes_of(problem) <= most_workspace_bytes(problem, find_device("a100")));
          }
        }
      }
    }
  }
}

TEST_CASE("one backward kernel serves all lengths, batches, heads and offsets", "[nogpu]") {
  KernelConfig config = parse_config("sm80 q32 kv64 w4 st2");
  const auto sources = [&](const char* problem) {
    std::vector<std::string> texts;
    for (const KernelLaunch& launch : generate(parse_problem(problem), config, find_device("a100")).launches)
      texts.push_back(launch.source);
    return texts;
  };
  CHECK(sources("backward b2 hq6 hkv2 sq100 skv300 d64 causal") == sources("backward hq1 sq7 d64 causal@-3"));
  config.kv_grad_per_query_head = true;
  CHECK(sources("backward b2 hq6 hkv2 sq100 skv300 d64 causal") == sources("backward hq8 hkv1 sq7 d64 causal@-3"));
}
