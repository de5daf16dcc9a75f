// What NVRTC says of the wgmma kernels of packed sequences, without a GPU: spills, and wgmma that waits.
#include <string>

#include "generator/generate.h"
#include "tests/catch.h"
#include "tests/kernels/compiled_resources.h"

namespace attune::tests {
namespace {

struct Compiled {
  const char *words, *config;  // the problem's, and what would serve it
  int most_spilled = 0;        // by any of its launches
};

// In forward the thread that finds tiles spills, at each tile, beside consumers of 240 registers; these do not.
constexpr Compiled kCompiled[] = {
    {"forward d64",
     "sm90 q192 kv112 st2 qreg order=tile-major rescale10 qst2 ordered overlap=within "
     "scheduler=dynamic-persistent"},
    {"forward d64 causal", "sm90 q128 kv128 st2 qreg order=l2-sections-reversed rescale10 ordered overlap=within"},
    {"forward d128", "sm90 q128 kv112 st2 qreg rescale10 qst2 ordered overlap=within scheduler=dynamic-persistent", 92},
    {"forward d128 causal", "sm90 q128 kv128 st2 order=l2-sections-reversed rescale10 ordered overlap=within"},
    {"forward d128 causal hq16 hkv4 softcap30 sink alibi", "sm90 q128 kv112 st2 rescale10 overlap=within pack-gqa"},
    {"forward d128 window=1000,0",
     "sm90 q192 kv80 st2 rescale10 qst2 ordered overlap=within "
     "scheduler=dynamic-persistent"},
    {"forward d192", "sm90 q128 kv112 st2 rescale10 ordered overlap=within scheduler=dynamic-persistent", 72},
    {"forward d256 causal", "sm90 q128 kv64 st2 order=l2-sections-reversed rescale10 ordered overlap=within"},
    {"forward d128 bias=1hqk max-sq1000 max-skv1000", "sm90 q128 kv112 st2 pst1 rescale10 ordered overlap=within"},
    {"forward d64 causal attention-mask=b1qk max-sq1000 max-skv1000",
     "sm90 q128 kv128 st2 pst2 visible-blocks rescale10 overlap=within", 72},
    {"backward d128 bias=1hqk bias-gradient max-sq1000 max-skv1000",
     "sm90 q64 kv128 st2 pst2 ordered overlap=within dq=atomic early8", 48},
    {"backward d64", "sm90 q64 kv128 st3 ordered overlap=queued dq=atomic dsst1 early4"},
    {"backward d64 causal",
     "sm90 q64 kv128 st4 order=l2-sections ordered overlap=within scheduler=dynamic-persistent "
     "dq=atomic early8"},
    {"backward d128", "sm90 q64 kv128 st3 ordered overlap=within dq=atomic early8"},
    {"backward d128 causal",
     "sm90 q64 kv128 st3 order=l2-sections ordered overlap=within "
     "scheduler=dynamic-persistent dq=atomic early8"},
    {"backward d128 causal deterministic softcap30 sink",
     "sm90 q64 kv64 st3 order=l2-sections overlap=within dq=ordered dsst1 ticket2 early8"},
    {"backward d192", "sm90 q64 kv64 st2 dq=atomic polled-loads split-dkdv dk-first early2"},
    {"backward d256 causal", "sm90 q64 kv64 st2 order=l2-sections dq=atomic polled-loads split-dkdv dk-first"}};

}  // namespace

TEST_CASE("NVRTC compiles sm90 kernels of packed sequences: no wgmma serialized, hardly a spill", "[nvrtc]") {
  CaseDraw draw = compiled_draw();
  for (const auto& [words, config, most_spilled] : kCompiled) {
    if (!draw.takes_next()) continue;
    std::string text = words;
    if (text.find(" hq") == std::string::npos) text += " hq8";
    const AttentionProblem problem = parse_problem(text + " bf16 b8 sq8000 packed");
    INFO(canonical_text(problem) << " | " << config);
    const KernelPlan plan = generate(problem, parse_config(config), find_device("h200"));
    for (const KernelLaunch& launch : plan.launches) {
      INFO(launch.entry);
      const KernelResources& resources = compiled_resources(launch);
      CHECK(resources.spill_bytes <= most_spilled);
      CHECK(resources.advisories.empty());
    }
  }
}

}  // namespace attune::tests
