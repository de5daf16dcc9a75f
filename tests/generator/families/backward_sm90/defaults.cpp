#include "generator/families/backward_sm90/defaults.h"

#include <string>
#include <vector>

#include "generator/families/family_word.h"
#include "generator/generate.h"
#include "tests/catch.h"

using namespace attune;

namespace {

std::string default_of(const char* problem, const char* device = "h200") {
  return canonical_text(default_config(parse_problem(problem), find_device(device)));
}

}  // namespace

TEST_CASE("backward's defaults on an H200 are kernels of wgmma from head dim 48 on", "[nogpu]") {
  CHECK(default_of("backward b4 hq32 sq4096 d64") == "sm90 q128 kv128 st3 ordered overlap=within dq=atomic early9");
  CHECK(default_of("backward b4 hq32 sq4096 d64 causal") ==
        "sm90 q128 kv128 st3 order=l2-sections ordered overlap=within dq=atomic early9");
  // Heads of 72 to 88: a fourth stage of Q and dO is worth more than a second one of dS.
  CHECK(default_of("backward b4 hq28 sq4096 d72") ==
        "sm90 q64 kv128 st4 ordered overlap=within dq=atomic dsst1 early8");
  CHECK(default_of("backward b4 hq16 sq4096 d128 causal") ==
        "sm90 q64 kv128 st3 order=l2-sections ordered overlap=within dq=atomic early8");
  CHECK(default_of("backward b4 hq8 sq4096 d256") == "sm90 q64 kv64 st2 dq=atomic polled-loads split-dkdv dk-first");
  CHECK(default_of("backward b4 hq8 sq4096 d256 causal deterministic") ==
        "sm90 q64 kv64 st2 order=l2-sections l2parts1 dq=ordered dsst1 split-dkdv ticket2");
  // Blocks that share a ticket, as many as let tiles go on with the heads that alternate.
  CHECK(default_of("backward b4 hq32 sq4096 d64 causal deterministic") ==
        "sm90 q128 kv128 st3 order=l2-sections ordered overlap=within dq=ordered ticket2 early9");
  CHECK(default_of("backward b4 hq16 sq4096 d128 deterministic") ==
        "sm90 q64 kv128 st3 order=l2-sections l2parts1 ordered overlap=within dq=ordered ticket4 early8");
  CHECK(default_of("backward b4 hq8 sq4096 d192") ==
        "sm90 q64 kv64 st2 dq=atomic polled-loads split-dkdv dk-first early2");
  CHECK(default_of("backward b4 hq8 sq4096 d224") == "sm90 q64 kv64 st2 dq=atomic polled-loads split-dkdv");
  // Shared memory holds three stages of narrower heads.
  CHECK(default_of("backward b4 hq8 sq4096 d192 deterministic") ==
        "sm90 q64 kv64 st3 order=l2-sections l2parts1 dq=ordered dsst1 split-dkdv ticket2");
  // Narrow heads: two CTAs on an SM where registers allow it.
  CHECK(default_of("backward b4 hq64 sq4096 d32") == "sm90 q128 kv128 st3 ordered overlap=within dq=atomic");
  CHECK(default_of("backward fp16 b4 hq48 sq4096 d16") == "sm90 q64 kv128 st3 cta2 ordered dq=atomic dsst1 early4");
  // A section of a single head is the order of rows.
  CHECK(default_of("backward b1 hq16 sq16384 d128 causal") ==
        "sm90 q64 kv128 st3 ordered overlap=within dq=atomic early8");
  // 8 heads of 4 tiles leave most SMs idle; smaller tiles leave fewer.
  CHECK(default_of("backward hq8 sq512 d128") == "sm90 q64 kv64 st3 overlap=within dq=atomic dsst1 early8");
  // So do groups of heads that share few tiles.
  CHECK(parse_config(default_of("backward hq32 hkv1 sq4096 d128")).kv_grad_per_query_head);
  CHECK_FALSE(parse_config(default_of("backward b4 hq32 hkv8 sq4096 d128 causal")).kv_grad_per_query_head);
  // Tiles that walk through eight heads drift apart.
  CHECK(parse_config(default_of("backward b2 hq64 hkv8 sq4096 d128 causal")).kv_grad_per_query_head);
}

TEST_CASE("backward's defaults are kernels of mma.sync where those of wgmma are slower or cannot serve", "[nogpu]") {
  for (const char* problem : {"backward b32 hq16 sq64 d32 causal", "backward b4 hq16 sq4096 d128 align2"})
    CHECK(parse_config(default_of(problem)).family == FamilyWord::sm80);
  CHECK(parse_config(default_of("backward b4 hq16 sq4096 d128", "a100")).family == FamilyWord::sm80);
}

TEST_CASE("each head dim has a default of wgmma that fits", "[nogpu]") {
  const DeviceSpec device = find_device("h200");
  for (const char* words : {"", " causal", " deterministic", " window=500,100"}) {
    for (int head_dim = 8; head_dim <= 256; head_dim += 8) {
      AttentionProblem problem =
          parse_problem("backward hq8 hkv2 sq1000 d" + std::to_string(head_dim) + std::string(words));
      INFO(canonical_text(problem));
      const auto config = backward_sm90_default(problem, device);
      REQUIRE(config);
      CHECK(infeasibility(problem, *config, device).empty());
    }
  }
}

TEST_CASE("a config of narrow heads comes to wide ones without its second CTA", "[nogpu]") {
  const KernelConfig narrow = parse_config("sm90 q64 kv64 st3 cta2 dq=atomic dsst1 early4");
  const auto adapted_to = [&](const char* problem) {
    return adapted(parse_problem(problem), narrow, find_device("h200"));
  };
  CHECK(adapted_to("backward b8 hq16 sq577 d32")->changes.empty());
  const auto wide = adapted_to("backward b8 hq16 sq577 d64");
  CHECK(wide->config.ctas_per_sm == 1);
  CHECK(wide->changes == std::vector<std::string>{"without cta2, which spills for head dims above 32"});
}
