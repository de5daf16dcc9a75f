#include "generator/families/invariance.h"

#include <map>
#include <string>
#include <vector>

#include "generator/config/config_fields.h"
#include "generator/config/config_space.h"
#include "generator/device/device_spec.h"
#include "generator/families/family_word.h"
#include "generator/generate.h"
#include "generator/problem/problem_fields.h"
#include "tests/catch.h"
#include "tests/generator/random_values.h"
#include "tests/generator/reasons_of.h"

using namespace attune;
using attune::testing::reasons_of;

namespace {

// The words of what decides bits.
std::string deciding_words(const AttentionProblem& problem, const KernelConfig& config) {
  const KernelFamily& family = *find_family(problem.pass, config.family);
  std::string words(to_string(config.family));
  for (const ConfigField& field : config_fields()) {
    if ((field.decides_bits & family.set) != 0) words += " " + field.text(config);
  }
  return words;
}

AttentionProblem without_mask(AttentionProblem problem) {
  problem.mask = MaskKind::none;
  problem.mask_offset = problem.first_offset = 0;
  return problem;
}

}  // namespace

TEST_CASE("what decides bits of an invariant problem follows from its class, not its size or mask", "[nogpu]") {
  RandomValues random(11);
  std::map<std::string, std::string> words_of_class;
  for (const char* name : {"h200", "a100", "rtx4090"}) {
    const DeviceSpec device = find_device(name);
    for (int i = 0; i < 1500; ++i) {
      AttentionProblem problem = random.problem();
      problem.head_dim = std::vector{16, 40, 64, 128, 192, 256}[static_cast<std::size_t>(i % 6)];
      problem.softmax_scale = default_softmax_scale(problem.head_dim);
      problem.invariant = true;
      const KernelConfig config = default_config(problem, device);
      INFO(name << ": " << canonical_text(problem) << ": " << canonical_text(config));
      REQUIRE(infeasibility(problem, config, device).empty());
      const std::string words = deciding_words(problem, config);
      const auto [first, is_new] =
          words_of_class.emplace(name + (" " + kernel_class_words(kernel_fields(without_mask(problem)))), words);
      REQUIRE(first->second == words);
    }
  }
}

TEST_CASE("the space of an invariant problem holds nothing that would change bits, and both ways to add parts",
          "[nogpu]") {
  for (const char* device_name : {"h200", "a100"}) {
    const DeviceSpec device = find_device(device_name);
    for (const char* text :
         {"forward bf16 hq16 hkv4 sq64 skv9000 d128 invariant", "forward fp16 hq8 sq300 d64 causal invariant",
          "backward bf16 hq8 hkv2 sq500 d64 invariant", "backward bf16 hq8 sq500 d128 causal invariant"}) {
      const AttentionProblem problem = parse_problem(text);
      const std::string expected = deciding_words(problem, default_config(problem, device));
      int feasible = 0, apart = 0;
      for (const Candidate& candidate : config_space(problem, device)) {
        if (!candidate.feasible()) continue;
        ++feasible;
        apart += candidate.config.key_parts == kFixedParts;
        INFO(text << ": " << canonical_text(candidate.config));
        REQUIRE(deciding_words(problem, candidate.config) == expected);
      }
      INFO(device_name << ": " << text);
      CHECK(feasible >= 8);
      CHECK((apart > 0) == (problem.seq_kv > 2 * kKeysOfPart));
    }
  }
}

TEST_CASE("a config that would change bits of an invariant problem is refused with the reason", "[nogpu]") {
  const char* const forward = "forward bf16 hq8 sq4096 d128 invariant";
  CHECK(reasons_of(forward, "sm90 q128 kv128 st2 overlap=within scheduler=static-persistent") == "");
  CHECK_THAT(reasons_of(forward, "sm90 q128 kv64 st2 overlap=within scheduler=static-persistent"),
             ContainsSubstring("kv64: it decides bits, and an invariant problem of this head dim has kv128"));
  CHECK_THAT(reasons_of(forward, "sm90 q128 kv128 st2 rescale10 overlap=within scheduler=static-persistent"),
             ContainsSubstring("rescale10: it decides bits"));
  CHECK_THAT(reasons_of(forward, "sm90 q128 kv128 st2 overlap=within scheduler=static-persistent parts=fill"),
             ContainsSubstring("take parts=fixed"));
  CHECK_THAT(reasons_of(forward, "sm80 q64 kv64 w4 st2"), ContainsSubstring("are those of family sm90"));
  CHECK_THAT(reasons_of(forward, "sm90 q128 kv128 st2 overlap=within"),
             ContainsSubstring("scheduler=static-persistent"));
  CHECK_THAT(reasons_of("forward bf16 hq8 sq4096 d128", "sm90 q128 kv128 st2 overlap=within parts=fixed"),
             ContainsSubstring("parts=fixed: only an invariant problem"));
  CHECK_THAT(reasons_of("forward bf16 b64 hq64 sq4096 skv131072 d128 invariant", "sm90 q128 kv128 st2 parts=fixed"),
             ContainsSubstring("parts=fixed: 16777216 rows"));
  CHECK_THAT(
      reasons_of("backward bf16 hq8 sq4096 d128 invariant", "sm90 q64 kv128 st3 ordered overlap=within dq=atomic"),
      ContainsSubstring("dq=atomic: it decides bits"));
}

namespace {

std::string adapted_text(const char* problem, const char* config) {
  const auto near = adapted(parse_problem(problem), parse_config(config), find_device("h200"));
  return near ? canonical_text(near->config) + (near->changes.empty() ? "" : " | " + near->changes.front()) : "";
}

}  // namespace

TEST_CASE("configs of clusters are adapted to used lengths", "[nogpu]") {
  CHECK(adapted_text("forward bf16 hq8 sq4096 d256 causal used",
                     "sm90 q128 kv80 st2 rescale10 overlap=within scheduler=dynamic-persistent vst1 cluster2") ==
        "sm90 q128 kv80 st2 rescale10 overlap=within scheduler=dynamic-persistent vst1 | without clusters, which used "
        "lengths do not go with");
  CHECK(adapted_text("backward bf16 hq8 sq4096 d128 used",
                     "sm90 q64 kv128 st2 ordered overlap=within dq=atomic cluster2") ==
        "sm90 q64 kv128 st2 ordered overlap=within dq=atomic | without clusters, which used lengths do not go with");
}

TEST_CASE("configs of equal lengths are adapted to packed sequences", "[nogpu]") {
  CHECK(
      adapted_text("forward bf16 b8 hq8 sq4096 d128 causal packed",
                   "sm90 q128 kv128 st2 rescale10 overlap=within scheduler=static-persistent") ==
      "sm90 q128 kv128 st2 rescale10 overlap=within scheduler=dynamic-persistent | with scheduler=dynamic-persistent, "
      "for sequences of any lengths");
  CHECK(adapted_text("forward bf16 b8 hq8 hkv1 sq800 d128 packed", "sm80 q64 kv64 w4 st2 rescale10 parts4") ==
        "sm80 q64 kv64 w4 st2 rescale10 parts4");
  CHECK(adapted_text("backward bf16 b8 hq8 sq4096 d128 packed",
                     "sm90 q64 kv128 st2 ordered overlap=within dq=atomic fused-convert") ==
        "sm90 q64 kv128 st2 ordered overlap=within dq=atomic | without fused-convert, which packed sequences do not "
        "have");
  CHECK_THAT(reasons_of("backward bf16 b8 hq8 sq4096 d128 packed",
                        "sm90 q64 kv128 st2 ordered overlap=within dq=atomic fused-convert"),
             ContainsSubstring("fused-convert: a head's last tile would convert the sums of all packed sequences"));
}

TEST_CASE("configs of other problems are adapted to invariant ones, and the other way about", "[nogpu]") {
  const auto text_of = adapted_text;
  CHECK(text_of("forward bf16 hq8 sq4096 d128 causal invariant",
                "sm90 q128 kv80 st2 rescale10 overlap=across scheduler=dynamic-persistent") ==
        "sm90 q128 kv128 st2 overlap=within scheduler=dynamic-persistent | with the sums of invariant problems");
  CHECK(
      text_of("forward bf16 hq8 sq1 skv9000 d128 invariant", "sm90 q64 kv64 st2 rescale10 parts=fill overlap=within") ==
      "sm90 q64 kv128 st2 parts=fixed overlap=within | with the sums of invariant problems");
  CHECK(text_of("forward bf16 hq8 sq1 skv9000 d128", "sm90 q64 kv128 st2 parts=fixed overlap=within") ==
        "sm90 q64 kv128 st2 parts=fill overlap=within | with parts=fill in place of fixed ones, which only invariant "
        "problems have");
  CHECK(text_of("forward bf16 hq8 sq4096 d128 invariant", "sm90 q192 kv128 st2 qreg overlap=within") ==
        "");  // no registers
}

TEST_CASE("parts of invariant problems begin at the same keys whatever the problem", "[nogpu]") {
  const DeviceSpec device = find_device("h200");
  const KernelConfig config = parse_config("sm90 q64 kv128 st2 parts=fixed overlap=within");
  for (const auto& [keys, parts] : {std::pair(1, 1), {kKeysOfPart, 1}, {kKeysOfPart + 1, 2}, {9 * kKeysOfPart, 9}}) {
    const AttentionProblem problem = parse_problem("forward bf16 hq8 sq1 d128 invariant skv" + std::to_string(keys));
    const KernelPlan plan = generate(problem, config, device);
    REQUIRE(plan.launches.size() == 2);
    CHECK(plan.launches[0].split.parts_of(problem) == parts);
    CHECK_THAT(plan.launches[0].source, ContainsSubstring("kPartBlocks = 16;"));
    CHECK(plan.workspace_bytes_of(problem) <= most_workspace_bytes(problem, device));
  }
}
