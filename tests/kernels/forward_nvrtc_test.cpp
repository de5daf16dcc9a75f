// What NVRTC says of kernels, without a GPU: spills, and wgmma that waits.
#include <string>
#include <utility>

#include "generator/config/config_space.h"
#include "generator/families/family_word.h"
#include "generator/generate.h"
#include "tests/catch.h"
#include "tests/kernels/compiled_resources.h"
#include "tests/kernels/forward_checks.h"

namespace attune::tests {

TEST_CASE("NVRTC compiles default configs of all head dims with hardly a spill", "[nvrtc]") {
  CaseDraw draw = compiled_draw();
  for (const char* device : {"a100", "h200"}) {
    for (const int head_dim : {8, 16, 40, 64, 72, 112, 128, 240, 256}) {
      for (const MaskKind mask : {MaskKind::none, MaskKind::causal}) {
        if (!draw.takes_next()) continue;
        AttentionProblem problem =
            make_problem(mask == MaskKind::none ? DataType::fp16 : DataType::bf16, 1, 1, 1000, head_dim, mask);
        problem.alignment = head_dim == 72 ? 2 : 16;
        const KernelConfig config = default_config(problem, find_device(device));
        const KernelPlan plan = generate(problem, config, find_device(device));
        INFO(device << ": " << canonical_text(problem) << " | " << canonical_text(config));
        const KernelResources& resources = compiled_resources(plan.launches.front());
        // A few registers around the loop cost nothing. Rows of 14 or 30 chunks keep more addresses alive; even so a
        // trial must run them.
        const bool many_addresses = head_dim == 112 || head_dim == 240;
        // Nothing at all beside wgmma, whose accumulators a spill would make wait.
        const bool sm90 = config.family == FamilyWord::sm90;
        CHECK(resources.spill_bytes <= (sm90 ? 0 : many_addresses ? 512 : 64));
        CHECK(resources.advisories.empty());
        CHECK(resources.registers > 0);
      }
    }
  }
}

TEST_CASE("NVRTC compiles sm90 kernels of all head dims: no wgmma serialized, no spill", "[nvrtc]") {
  CaseDraw draw = compiled_draw();
  for (const int head_dim : {8, 16, 40, 64, 72, 96, 128, 160, 192, 256}) {
    for (const MaskKind mask : {MaskKind::none, MaskKind::causal}) {
      AttentionProblem problem = make_problem(DataType::bf16, 1, 8, 1000, head_dim, mask);
      problem.heads_kv = 1;
      // The most and the least that a kernel of this tile holds, and the other walks.
      Configs configs =
          mask == MaskKind::causal
              ? Configs{"sm90 q128 kv64 st2 rescale10 ordered overlap=across scheduler=dynamic-persistent",
                        "sm90 q128 kv64 st1 rescale10 overlap=within psmem exp2"}
              : Configs{"sm90 q128 kv64 st2", "sm90 q128 kv64 st1 rescale10 pingpong exp4"};
      if (head_dim >= 128) {
        configs.push_back(mask == MaskKind::causal
                              ? "sm90 q128 kv64 st2 rescale10 overlap=within scheduler=dynamic-persistent cluster2"
                              : "sm90 q128 kv64 st2 rescale10 overlap=within cluster2");
      }
      if (mask == MaskKind::causal) configs.push_back("sm90 q128 kv64 st2 rescale10 overlap=within pack-gqa");
      for (const char* config : configs) {
        if (!draw.takes_next()) continue;
        const KernelPlan plan = generate(problem, parse_config(config), find_device("h200"));
        INFO(canonical_text(problem) << " | " << config);
        const KernelResources& resources = compiled_resources(plan.launches.front());
        CHECK(resources.spill_bytes == 0);
        CHECK(resources.advisories.empty());
      }
    }
  }
}

// What reads the tiles holds no registers over a block: loads of each thread among the softmax spill.
TEST_CASE("NVRTC compiles sm90 kernels with tiles of tensors of pairs: no wgmma serialized, no spill", "[nvrtc]") {
  CaseDraw draw = compiled_draw();
  constexpr std::pair<const char*, const char*> kCompiled[] = {
      {"d128 bias=1hqk", "sm90 q128 kv128 st2 pst1 rescale10 qst2 ordered overlap=within scheduler=static-persistent"},
      {"d128 bias=1hqk", "sm90 q192 kv80 st2 pst1 rescale10 qst2 ordered overlap=within scheduler=dynamic-persistent"},
      {"d128 bias=1hqk attention-mask=b1qk", "sm90 q128 kv112 st2 pst1 rescale10 overlap=within"},
      {"d128 bias=1hqk bias-fp32", "sm90 q128 kv112 st2 pst1 rescale10 overlap=within"},
      {"d128 causal bias=1hqk alibi softcap20", "sm90 q128 kv128 st2 pst1 rescale10 overlap=within"},
      {"d128 attention-mask=b1qk",
       "sm90 q192 kv80 st2 pst1 rescale10 qst2 ordered overlap=within "
       "scheduler=dynamic-persistent"},
      {"d128 attention-mask=b1qk",
       "sm90 q192 kv64 st2 pst2 rescale10 qst2 ordered overlap=within "
       "scheduler=dynamic-persistent visible-blocks"},
      {"d64 causal attention-mask=b1qk",
       "sm90 q192 kv96 st2 pst2 rescale10 qst2 ordered overlap=within "
       "scheduler=dynamic-persistent visible-blocks"},
      {"d64 bias=1hqk", "sm90 q192 kv128 st2 pst1 rescale10 qst2 ordered overlap=within scheduler=static-persistent"}};
  for (const auto& [words, config] : kCompiled) {
    if (!draw.takes_next()) continue;
    const AttentionProblem problem = parse_problem(std::string("forward bf16 b1 hq2 sq1000 ") + words);
    INFO(words << " | " << config);
    const KernelPlan plan = generate(problem, parse_config(config), find_device("h200"));
    for (const KernelLaunch& launch : plan.launches) {
      const KernelResources& resources = compiled_resources(launch);
      CHECK(resources.spill_bytes == 0);
      CHECK(resources.advisories.empty());
    }
  }
}

// Bits are drawn where P is packed, beside both accumulators.
TEST_CASE("NVRTC compiles kernels with dropout: no wgmma serialized, no spill", "[nvrtc]") {
  CaseDraw draw = compiled_draw();
  const auto check = [&](const std::string& words, const KernelConfig& config, const char* device) {
    const AttentionProblem problem = parse_problem("forward bf16 b1 hq2 sq1000 " + words);
    const KernelPlan plan = generate(problem, config, find_device(device));
    INFO(canonical_text(problem) << " | " << canonical_text(config) << " | " << device);
    for (const KernelLaunch& launch : plan.launches) {
      const KernelResources& resources = compiled_resources(launch);
      CHECK(resources.spill_bytes == 0);
      CHECK(resources.advisories.empty());
    }
  };
  constexpr std::pair<const char*, const char*> kCompiled[] = {
      {"d128", "sm90 q192 kv80 st2 ordered overlap=within rescale10"},
      {"d128", "sm90 q128 kv128 st2 overlap=within rescale10 ordered"},
      {"d128 causal", "sm90 q128 kv176 st2 overlap=within rescale10 ordered qst1"},
      {"d256 causal", "sm90 q128 kv80 st2 overlap=within rescale10 ordered"},
      {"d64", "sm90 q192 kv128 st2 rescale10 qst2 ordered overlap=within scheduler=dynamic-persistent"},
      {"d64 causal",
       "sm90 q192 kv128 st2 order=l2-sections-reversed rescale10 qst2 ordered overlap=within "
       "scheduler=dynamic-persistent"},
      {"d128 causal",
       "sm90 q192 kv80 st2 order=l2-sections-reversed rescale10 qst2 ordered overlap=within "
       "scheduler=dynamic-persistent"}};
  for (const char* dropout : {" dropout0.1", " dropout0.01"}) {
    for (const auto& [words, config] : kCompiled)
      if (draw.takes_next()) check(std::string(words) + dropout, parse_config(config), "h200");
    for (const char* device : {"a100", "h200"}) {
      for (const char* words : {"d64 causal", "d128", "d256 causal"}) {
        const std::string asked = std::string(words) + dropout;
        const AttentionProblem problem = parse_problem("forward bf16 b1 hq2 sq1000 " + asked);
        if (draw.takes_next()) check(asked, default_config(problem, find_device(device)), device);
      }
    }
  }
}

TEST_CASE("NVRTC compiles kernels that split their keys, and the one that combines: no wgmma serialized, no spill",
          "[nvrtc]") {
  CaseDraw draw = compiled_draw();
  const auto check = [&](const char* device, const AttentionProblem& problem, const char* config) {
    if (!draw.takes_next()) return;
    INFO(device << ": " << canonical_text(problem) << " | " << config);
    const KernelPlan plan = generate(problem, parse_config(config), find_device(device));
    REQUIRE(plan.launches.size() == 2);
    for (const KernelLaunch& launch : plan.launches) {
      INFO(launch.entry);
      const KernelResources& resources = compiled_resources(launch);
      CHECK(resources.spill_bytes == 0);
      CHECK(resources.advisories.empty());
    }
  };
  for (const int head_dim : {8, 40, 64, 128, 256}) {
    for (const char* mask : {"", " causal", " window=100,20"}) {
      const std::string problem = " hq8 hkv1 sq100 skv1000 d" + std::to_string(head_dim) + mask;
      for (const char* device : {"a100", "rtx4090"}) {
        check(device, parse_problem("fp16" + problem + (head_dim == 40 ? " align2" : "")),
              head_dim > 128 ? "sm80 q64 kv32 w4 st1 qsmem rescale10 parts=fill"
                             : "sm80 q64 kv32 w4 st2 rescale10 parts=fill");
      }
      check("h200", parse_problem("bf16" + problem),
            "sm90 q128 kv64 st2 rescale10 overlap=within scheduler=static-persistent parts=fill");
      check("h200", parse_problem("bf16" + problem), "sm90 q64 kv64 st2 rescale10 overlap=within pack-gqa parts=fill");
      check("a100", parse_problem("bf16" + problem),
            head_dim > 128 ? "sm80 q16 kv32 w1 st2 qsmem rescale10 pack-gqa parts=fill"
                           : "sm80 q16 kv32 w1 st2 rescale10 pack-gqa parts=fill");
    }
  }
}

}  // namespace attune::tests
