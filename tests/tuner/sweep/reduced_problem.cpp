#include "tuner/sweep/reduced_problem.h"

#include "generator/generate.h"
#include "tests/catch.h"

using namespace attune;

TEST_CASE("reduced problems are of the same kernel class, small, with the same tails", "[nogpu]") {
  for (const char* text : {"forward bf16 b4 hq16 hkv4 sq4096 d128 causal", "forward fp16 b1 hq1 sq100000 skv77 d256",
                           "forward bf16 b64 hq32 sq5 skv70001 d8 causal-top-left",
                           "backward bf16 b4 hq16 hkv4 sq4096 d128 causal deterministic",
                           "forward bf16 b1 hq64 hkv1 sq16384 d72 causal@-100"}) {
    INFO(text);
    const AttentionProblem problem = parse_problem(text);
    for (const char* config_text : {"sm80 q128 kv64 w4 st2", "sm80 q192 kv176 w4 st2", "sm80 q64 kv32 w4 st3"}) {
      const KernelConfig config = parse_config(config_text);
      const AttentionProblem reduced = reduced_problem(problem, config);
      REQUIRE_NOTHROW(validate(reduced));
      REQUIRE(reduced.head_dim == problem.head_dim);
      REQUIRE(reduced.mask == problem.mask);
      REQUIRE(reduced.dtype == problem.dtype);
      REQUIRE(reduced.seq_q % config.block_q == problem.seq_q % config.block_q);
      REQUIRE(reduced.seq_kv % config.block_kv == problem.seq_kv % config.block_kv);
      REQUIRE(reduced.seq_q <= problem.seq_q);
      REQUIRE(reduced.seq_kv <= problem.seq_kv);
      REQUIRE(count_flops(reduced) < 0.6e9);
      REQUIRE(count_flops(reduced) > 0);
    }
  }
  const AttentionProblem small = parse_problem("forward bf16 b1 hq2 sq128 d64");
  REQUIRE(reduced_problem(small, KernelConfig()) == small);
}

TEST_CASE("a reduced problem has keys enough for several parts", "[nogpu]") {
  const AttentionProblem problem = parse_problem("forward bf16 b1 hq8 sq512 skv8192 d128");
  for (const char* text :
       {"sm90 q64 kv64 st2 parts=fill", "sm80 q64 kv32 w4 st2 parts=fill", "sm90 q128 kv128 st2 parts=fill"}) {
    INFO(text);
    const KernelConfig config = parse_config(text);
    const AttentionProblem reduced = reduced_problem(problem, config);
    REQUIRE(count_flops(reduced) < 0.6e9);
    CHECK(generate(reduced, config, find_device("h200")).launches[0].split.parts_of(reduced) == 3);
  }
}
