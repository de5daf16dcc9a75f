#include "generator/oracle_kernels.h"

#include "generator/generate.h"
#include "tests/catch.h"

using namespace attune;

TEST_CASE("kernels of checks are rendered for both targets", "[nogpu]") {
  const AttentionProblem problem = parse_problem("fp16 b2 hq6 hkv3 sq100 skv70 d72 causal");
  const DeviceSpec& device = find_device("a100");
  for (const KernelTarget target : {KernelTarget::cuda, KernelTarget::emulator}) {
    for (const KernelLaunch& launch :
         {generate_comparison(problem, device, TemplateSet::embedded(), target),
          generate_checksum(device, TemplateSet::embedded(), target),
          generate_random_normal(problem.dtype, device, TemplateSet::embedded(), target)}) {
      INFO(launch.entry);
      CHECK(launch.arch == "sm_80");
      CHECK(launch.target == target);
      CHECK(launch.max_ctas == kMaxOracleCtas);
      CHECK_THAT(launch.source, ContainsSubstring(launch.entry + "(const __grid_constant__ Arguments args)"));
      CHECK(launch.lines.size() > 50);
    }
  }
}

TEST_CASE("no problem needs more partial results than the oracle has room for", "[nogpu]") {
  AttentionProblem problem = parse_problem("b2 hq6 sq65 d72");
  const KernelLaunch launch = generate_comparison(problem, find_device("h200"));
  CHECK(launch.grid_x(problem) == 24);
  problem.batch = 1 << 20;
  CHECK(launch.grid_x(problem) == kMaxOracleCtas);
  CHECK(grid_of_elements(1) == 1);
  CHECK(grid_of_elements(2048) == 1);
  CHECK(grid_of_elements(2049) == 2);
  CHECK(grid_of_elements(std::int64_t{1} << 40) == kMaxOracleCtas);
}

TEST_CASE("kernels of checks leave the hashes of the forward families as they are", "[nogpu]") {
  std::map<std::string, std::string> texts = TemplateSet::embedded().texts();
  for (const char* name : {"kernels/compare_forward", "kernels/checksum", "kernels/random_normal",
                           "primitives/wide/cuda", "oracle/mix_bits"}) {
    INFO(name);
    REQUIRE(texts.contains(name));
    texts[name] += "// another text\n";
  }
  for (const KernelFamily family : {KernelFamily::sm80, KernelFamily::sm90})
    CHECK(templates_hash(family, TemplateSet(texts)) == templates_hash(family));
}
