#include "generator/ladder/attention_algorithm.h"

#include <string>
#include <vector>

#include "generator/error.h"
#include "generator/families/forward_sm80/defaults.h"
#include "generator/generate.h"
#include "tests/catch.h"

using namespace attune;

namespace {

using Algorithm = AttentionAlgorithm;

std::vector<std::string> entries_of(const KernelPlan& plan) {
  std::vector<std::string> entries;
  for (const KernelLaunch& launch : plan.launches) entries.push_back(launch.entry);
  return entries;
}

std::vector<MemoryTraffic> traffic_of(const char* text, Algorithm algorithm) {
  const AttentionProblem problem = parse_problem(text);
  return count_traffic(generate(problem, algorithm, find_device("a100")), algorithm, problem);
}

}  // namespace

TEST_CASE("an algorithm's name round-trips, and others are refused", "[nogpu]") {
  for (const Algorithm algorithm : kAttentionAlgorithms) CHECK(parse_algorithm(to_string(algorithm)) == algorithm);
  CHECK_THROWS_WITH(parse_algorithm("fa3"), ContainsSubstring("fa3") && ContainsSubstring("standard, online, fa1"));
  CHECK_THROWS_AS(parse_algorithm(""), Error);
}

TEST_CASE("algorithms are plans of their own: launches, workspace, ordered outputs", "[nogpu]") {
  const AttentionProblem problem = parse_problem("b2 hq6 hkv2 sq100 skv301 d64 causal");
  const std::size_t rows = 2 * 6 * 100;
  const auto plan_of = [&](Algorithm algorithm) { return generate(problem, algorithm, find_device("h200")); };

  for (const Algorithm algorithm : {Algorithm::standard, Algorithm::online}) {
    const KernelPlan plan = plan_of(algorithm);
    CHECK(entries_of(plan) ==
          std::vector<std::string>{"attune_ladder_scores", "attune_ladder_softmax", "attune_ladder_values"});
    CHECK(plan.workspace_bytes_of(problem) == rows * 304 * sizeof(float));  // rows of S begin at multiples of 16 bytes
    CHECK(plan.zeroed_bytes_of(problem) == 0);
    CHECK(plan.launches[0].grid_x(problem) == 2 * 6 * 2);   // 64 queries each
    CHECK(plan.launches[1].grid_x(problem) == 2 * 6 * 25);  // 4 queries each
    CHECK(plan.launches[2].grid_x(problem) == 2 * 6 * 2);
    CHECK(plan.ordered_outputs == std::vector<Operand>{Operand::o, Operand::lse});
  }
  CHECK(plan_of(Algorithm::standard).launches[0].source.substr(100) != plan_of(Algorithm::online).launches[1].source);

  const KernelPlan fa1 = plan_of(Algorithm::fa1);
  CHECK(entries_of(fa1) == std::vector<std::string>{"attune_ladder_fa1"});
  CHECK(fa1.launches[0].grid_x(problem) == 2 * 6);
  CHECK(fa1.workspace_bytes_of(problem) == rows * (64 + 2) * sizeof(float));
  CHECK(fa1.flops == count_flops(problem));

  const KernelPlan fa2 = plan_of(Algorithm::fa2);
  CHECK(fa2.config == forward_sm80_default(problem, find_device("h200")));
  CHECK(fa2.launches[0].source == generate(problem, fa2.config, find_device("h200")).launches[0].source);
  CHECK(fa2.workspace_bytes_of(problem) == 0);
}

TEST_CASE("online differs from standard in the passes over a row and nothing else", "[nogpu]") {
  const AttentionProblem problem = parse_problem("sq100 d64");
  const KernelPlan standard = generate(problem, Algorithm::standard, find_device("a100"));
  const KernelPlan online = generate(problem, Algorithm::online, find_device("a100"));
  // All but the first line, which names the algorithm.
  const auto body = [](const KernelPlan& plan, std::size_t launch) {
    return plan.launches[launch].source.substr(plan.launches[launch].source.find('\n'));
  };
  CHECK(body(standard, 0) == body(online, 0));
  CHECK(body(standard, 1) != body(online, 1));
  CHECK(body(standard, 2) == body(online, 2));
}

TEST_CASE("the traffic of algorithms is counted as by hand", "[nogpu]") {
  // 100 queries in tiles of 64 and 36, each of which reads 130 keys of 128 bytes; two heads.
  const char* problem = "b1 hq2 hkv1 sq100 skv130 d64";
  const double q = 2 * 100 * 128, streamed = 2 * 2 * 130 * 128, scores = 4 * 2 * 100 * 130, lse = 4 * 2 * 100;
  CHECK(traffic_of(problem, Algorithm::standard) ==
        std::vector<MemoryTraffic>{{q + streamed, scores}, {3 * scores, scores + lse}, {scores + streamed, q}});
  CHECK(traffic_of(problem, Algorithm::online) ==
        std::vector<MemoryTraffic>{{q + streamed, scores}, {2 * scores, scores + lse}, {scores + streamed, q}});
  CHECK(total_traffic(traffic_of(problem, Algorithm::online)).read_bytes == q + 2 * streamed + 3 * scores);
  // One tile of 128 queries, visited for each of 3 blocks of keys: Q three times, O, l and m twice.
  const double state = 2 * 100 * 4 * (64 + 2);
  CHECK(traffic_of(problem, Algorithm::fa1) ==
        std::vector<MemoryTraffic>{{2 * 2 * 130 * 128 + 3 * q + 2 * state, 2 * state + q + lse}});
  // Queries that see 0, 1 and 2 keys: 3 pairs, one block of 64 keys.
  const std::vector<MemoryTraffic> masked = traffic_of("sq3 skv100 d8 causal@-1", Algorithm::standard);
  CHECK(masked[0] == MemoryTraffic{3 * 16 + 64 * 16, 4 * 3});
  CHECK(masked[1] == MemoryTraffic{3 * 4 * 3, 4 * 3 + 4 * 3});
  // Queries that see nothing are visited by fa1 once, with the first block of keys.
  CHECK(traffic_of("sq3 skv100 d8 causal@-9", Algorithm::fa1) ==
        std::vector<MemoryTraffic>{{2 * 64 * 16 + 3 * 16, 3 * 16 + 3 * 4}});
}

TEST_CASE("algorithms of the ladder refuse a window, and say what to take", "[nogpu]") {
  for (const AttentionAlgorithm algorithm :
       {AttentionAlgorithm::standard, AttentionAlgorithm::online, AttentionAlgorithm::fa1, AttentionAlgorithm::fa2}) {
    CHECK_THROWS_WITH(generate(parse_problem("sq100 d64 window=10,0"), algorithm, find_device("a100"),
                               TemplateSet::embedded(), KernelTarget::cuda),
                      ContainsSubstring("serve a causal mask and none; take a config instead"));
  }
}

TEST_CASE("S is what tells the algorithms apart: traffic at 4096 keys falls from step to step", "[nogpu]") {
  for (const char* problem : {"b4 hq16 sq4096 d64", "b4 hq16 sq4096 d128 causal"}) {
    double before = 0;
    for (const Algorithm algorithm : {Algorithm::standard, Algorithm::online, Algorithm::fa1, Algorithm::fa2}) {
      const MemoryTraffic total = total_traffic(traffic_of(problem, algorithm));
      const double bytes = total.read_bytes + total.written_bytes;
      INFO(problem << " " << to_string(algorithm) << " " << bytes);
      if (before > 0) CHECK(bytes < before);
      CHECK(bytes >= count_bytes(parse_problem(problem)));
      before = bytes;
    }
  }
}

TEST_CASE("one kernel of an algorithm serves all lengths, batches, heads and offsets", "[nogpu]") {
  for (const Algorithm algorithm : {Algorithm::standard, Algorithm::online, Algorithm::fa1}) {
    const auto sources = [&](const char* problem) {
      std::vector<std::string> texts;
      for (const KernelLaunch& launch : generate(parse_problem(problem), algorithm, find_device("a100")).launches)
        texts.push_back(launch.source);
      return texts;
    };
    CHECK(sources("b2 hq6 hkv2 sq100 skv300 d64 causal") == sources("hq1 sq7 d64 causal@-3"));
    CHECK(sources("sq100 d64") != sources("sq100 d64 causal"));
    CHECK(sources("sq100 d64") != sources("sq100 d64 align2"));
  }
}

TEST_CASE("each head dim has its algorithms on each device", "[nogpu]") {
  int first = 0;  // each device a third of the head dims, its neighbours the others
  for (const DeviceSpec& device : known_devices()) {
    first = first % 24 + 8;
    for (int head_dim = first; head_dim <= 256; head_dim += 24) {
      const AttentionProblem problem = make_problem(DataType::bf16, 1, 2, 1000, head_dim);
      for (const Algorithm algorithm : kAttentionAlgorithms) {
        INFO(device.key << " d" << head_dim << " " << to_string(algorithm));
        CHECK_NOTHROW(generate(problem, algorithm, device));
      }
    }
  }
}

TEST_CASE("what no algorithm can do is refused", "[nogpu]") {
  AttentionProblem backward = parse_problem("backward sq100 d64");
  CHECK_THROWS_WITH(generate(backward, Algorithm::fa1, find_device("a100")), ContainsSubstring("forward"));
  DeviceSpec old = find_device("a100");
  old.compute_major = 7;
  CHECK_THROWS_WITH(generate(parse_problem("sq100 d64"), Algorithm::standard, old), ContainsSubstring("8.0"));
  DeviceSpec small = find_device("a100");
  small.shared_bytes_per_block = 48 << 10;
  CHECK_THROWS_WITH(generate(parse_problem("sq100 d256"), Algorithm::fa1, small), ContainsSubstring("shared memory"));
  const AttentionProblem huge = parse_problem("b1000 hq100 sq1000000000 d8");
  const KernelPlan plan = generate(huge, Algorithm::standard, find_device("a100"));
  CHECK_THROWS_WITH(plan.workspace_bytes_of(huge), ContainsSubstring("2^60"));
}
