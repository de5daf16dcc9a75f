#include <string>
#include <vector>

#include "generator/generate.h"
#include "tests/catch.h"
#include "tests/generator/reasons_of.h"

using namespace attune;
using attune::testing::reasons_of;

TEST_CASE("configs that no backward kernel serves are refused with reasons", "[nogpu]") {
  CHECK(reasons_of("backward sq100 d64", "sm80 q64 kv64 w4 st2").empty());
  const std::vector<std::pair<const char*, const char*>> refused = {
      {"sm80 q64 kv64 w4 st2 qsmem", "qsmem: backward_sm80 has no such choice"},
      {"sm80 q64 kv64 w4 st2 even-tiles", "even-tiles: backward_sm80 has no such choice"},
      {"sm80 q40 kv64 w4 st2", "multiple of 16"},
      {"sm80 q64 kv64 w3 st2", "kv must be 48, 96 or 144"},
      {"sm80 q64 kv64 w4 st9", "st9"},
      {"sm80 q64 kv64 w4 query-warps3 st2", "query-warps3: must divide the 4 warps"},
      {"sm80 q48 kv64 w4 query-warps2 st2", "q48 query-warps2: warps that share keys take 16 queries each"},
      {"sm80 q64 kv64 w8 query-warps8 st2", "kv must be 16, 32 or 48"},
      {"sm80 q64 kv64 w4 st2 order=tile-major", "take order=head-major or l2-sections"},
      {"sm80 q64 kv64 w4 st2 l2parts3", "l2parts3: only order=l2-sections has sections"},
      {"sm80 q64 kv64 w4 st2 cta99", "cta99"},
      {"sm80 q64 kv64 w4 st2 query-warps2 dq-first",
       "dq-first: only where warps share keys (query-warpsN) and add to dQ"},
      {"sm80 q64 kv64 w4 st2 dq-first dq=atomic", "dq-first: only where"},
  };
  CHECK_THAT(reasons_of("backward hq4 sq100 d64", "sm80 q64 kv64 w4 st2 kv-grad-per-query-head"),
             ContainsSubstring("kv-grad-per-query-head: needs grouped heads"));
  for (const char* dq : {"own", "ordered"})
    CHECK(reasons_of("backward hq4 hkv2 sq100 d64 deterministic",
                     std::string("sm80 q64 kv64 w4 st2 kv-grad-per-query-head dq=") + dq)
              .empty());
  CHECK_THAT(
      reasons_of("backward hq4 hkv2 sq100 d64 deterministic", "sm80 q64 kv64 w4 st2 kv-grad-per-query-head dq=atomic"),
      ContainsSubstring("dq=atomic deterministic"));
  for (const auto& [config, reason] : refused)
    CHECK_THAT(reasons_of("backward sq100 d64", config), ContainsSubstring(reason));
  CHECK_THAT(reasons_of("backward sq100 d256", "sm80 q128 kv64 w4 st2"), ContainsSubstring("shared memory"));
  CHECK_THAT(reasons_of("backward sq100 d256", "sm80 q128 kv64 w4 st1"), ContainsSubstring("registers"));
}
