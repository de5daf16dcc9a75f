#include "generator/families/backward_sm80/defaults.h"

#include <string>

#include "generator/generate.h"
#include "tests/catch.h"

using namespace attune;

TEST_CASE("on mma.sync heads are apart by default where common tiles leave SMs idle and walks are long", "[nogpu]") {
  const auto apart = [](const char* problem) {
    return backward_sm80_default(parse_problem(problem), find_device("h200")).kv_grad_per_query_head;
  };
  CHECK(apart("backward hq32 hkv1 sq4096 d128"));
  CHECK(apart("backward hq32 hkv2 sq1024 d128 causal"));
  CHECK(apart("backward hq32 hkv1 sq1024 d64 causal deterministic"));
  CHECK_FALSE(apart("backward hq32 sq1024 d128 causal"));
  CHECK_FALSE(apart("backward b4 hq32 hkv8 sq4096 d128 causal"));  // 1024 tiles
  CHECK_FALSE(apart("backward hq2 hkv1 sq1 skv8192 d128"));        // a step of one query
}

TEST_CASE("each head dim has a default backward config of mma.sync on each device", "[nogpu]") {
  for (const char* device : {"a100", "rtx4090", "l4", "h200"}) {
    for (int head_dim = 8; head_dim <= 256; head_dim += 8) {
      AttentionProblem problem = make_problem(DataType::bf16, 1, 2, 1000, head_dim);
      problem.pass = Pass::backward;
      INFO(device << " d" << head_dim);
      CHECK(infeasibility(problem, backward_sm80_default(problem, find_device(device)), find_device(device)).empty());
    }
  }
}

TEST_CASE(
    "mma.sync's defaults of backward on an H200 are the tiles that were timed to be best, where there is enough to do",
    "[nogpu]") {
  const auto of = [](const char* problem, const char* device = "h200") {
    return canonical_text(backward_sm80_default(parse_problem(problem), find_device(device)));
  };
  CHECK(of("backward b4 hq32 sq4096 d64") == "sm80 q64 kv96 w4 st2 query-warps2 dq=atomic");
  CHECK(of("backward b4 hq32 sq4096 d64 causal") == "sm80 q64 kv96 w4 st2 order=l2-sections query-warps2 dq=atomic");
  CHECK(of("backward b4 hq16 sq4096 d128 causal") == "sm80 q64 kv128 w8 st2 order=l2-sections query-warps2 dq=atomic");
  CHECK(of("backward b4 hq8 sq4096 d256 deterministic") == "sm80 q64 kv64 w8 st2 query-warps4 dq=ordered");
  CHECK(of("backward b4 hq37 sq4096 d56") == "sm80 q32 kv128 w4 st2 dq=atomic");
  CHECK(of("backward b4 hq12 sq4096 d176") == "sm80 q64 kv128 w8 st2 query-warps2 dq-first dq=atomic");
  CHECK(of("backward b4 hq9 sq4096 d224") == "sm80 q128 kv64 w8 st1 query-warps4 dq-first dq=atomic");
  CHECK(of("backward b4 hq10 sq4096 d192") == "sm80 q64 kv96 w8 st2 query-warps4 dq-first dq=atomic");
  CHECK(of("backward b4 hq10 sq4096 d192 deterministic") == "sm80 q64 kv96 w8 st2 query-warps4 dq-first dq=ordered");
  // A section of a single head is the order of rows.
  CHECK(of("backward b1 hq16 sq16384 d128 causal") == "sm80 q64 kv128 w8 st2 query-warps2 dq=atomic");
  // 8 heads of 4 tiles leave most SMs idle; smaller tiles leave fewer.
  CHECK(of("backward hq8 sq512 d128") == "sm80 q32 kv32 w4 st2 query-warps2 dq=atomic");
  // One CTA on an SM, for the long tiles to spread out.
  CHECK(of("backward hq16 sq1000 d128 causal") == "sm80 q64 kv64 w4 st3 order=l2-sections query-warps2 dq=atomic");
  // Zeros, sums and their conversion move more bytes than a walk of two steps.
  CHECK(of("backward b128 hq16 sq128 d128 causal") == "sm80 q32 kv32 w2 st2 order=l2-sections");
  // An SM of an A100 holds one CTA of the tiles that an H200 takes.
  CHECK(of("backward b4 hq32 sq4096 d80", "a100") == "sm80 q64 kv128 w8 st2 query-warps2 dq=atomic");
}
