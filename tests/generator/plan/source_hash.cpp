#include "generator/plan/source_hash.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "generator/generate.h"
#include "generator/ladder/attention_algorithm.h"
#include "generator/oracle/oracle_kernels.h"
#include "tests/catch.h"

using namespace attune;

namespace source_hash_test {
namespace {

using Texts = std::map<std::string, std::string>;

struct Case {
  const char *problem, *config;
};
constexpr Case kCases[] = {
    {"sq1024 d64", "sm80 q128 kv64 w4 st2"},
    {"sq1024 d64 causal", "sm90 q128 kv64 st2"},
    {"backward hq8 hkv2 sq1024 d64 causal", "sm80 q64 kv64 w4 st2 query-warps2 dq=atomic kv-grad-per-query-head"}};

KernelPlan plan_of(const Case& of, const Texts& texts, KernelTarget target = KernelTarget::cuda) {
  return generate(parse_problem(of.problem), parse_config(of.config), find_device("h200"), TemplateSet(texts), target);
}

// The partials that the kernels of a plan were made of.
std::set<std::string> parts_of(const KernelPlan& plan) {
  std::set<std::string> parts;
  for (const KernelLaunch& launch : plan.launches) {
    for (const TemplateLine& line : launch.lines) parts.insert(line.file);
  }
  return parts;
}

}  // namespace

TEST_CASE("a source is what follows its first line", "[nogpu]") {
  CHECK(source_body("// attune forward · source 0\nint x;\n") == "int x;\n");
  CHECK(source_body("// attune") == "// attune");  // of somebody else
  CHECK(source_body("int x;\nint y;") == "int x;\nint y;");
  CHECK(source_body("// attune forward") == "");
  CHECK(hash_of_text("") == "2d06800538d394c2");  // XXH3-64 of nothing, seed 0
  CHECK(hash_of_text("a").size() == 16);
}

TEST_CASE("a source is known by its tokens, or as a whole where it has none", "[nogpu]") {
  CHECK(hash_of_source("int x;  // one\n") == hash_of_source("// attune forward\nint\nx ;"));
  CHECK(hash_of_source("int x;") == hash_of_text("int\nx\n;\n"));
  CHECK(hash_of_source("int x;") != hash_of_source("int y;"));
  CHECK(hash_of_source("a = \"b  c\";") != hash_of_source("a = \"b c\";"));
  CHECK(hash_of_source("// attune forward\nint x = __LINE__;") == hash_of_text("int x = __LINE__;"));
  CHECK(hash_of_source("int x = __LINE__;") != hash_of_source("\nint x = __LINE__;"));
}

TEST_CASE("provenance is the code that a kernel was made of, and nothing beside it", "[nogpu]") {
  const Texts texts = TemplateSet::embedded().texts();
  for (const Case& of : kCases) {
    INFO(of.problem << " " << of.config);
    const KernelPlan plan = plan_of(of, texts);
    const std::set<std::string> parts = parts_of(plan);
    const std::string hash = plan.source_hash();
    REQUIRE(hash.size() == 16);
    std::size_t unused = 0;
    for (const auto& [name, text] : texts) {
      if (parts.contains(name)) continue;
      Texts other = texts;
      // What was there stays: the kernel may name it where a condition is false. Of primitives that are included, those
      // that the kernel does not use count as little.
      other[name] += "\ninline int used_by_nobody() { return 0; }\n";
      CHECK(plan_of(of, other).source_hash() == hash);
      ++unused;
    }
    CHECK(unused > 50);
    Texts more = texts;
    more["attention/mask_of_a_later_version"] = "what a kernel does not use";
    CHECK(plan_of(of, more).source_hash() == hash);
    // A comment or a line break makes it no other kernel, a statement does.
    for (const std::string& name : parts) {
      INFO(name);
      Texts other = texts;
      other[name] += "// another text\n\n";
      CHECK(plan_of(of, other).source_hash() == hash);
      other[name] += "static_assert(true);\n";
      CHECK(plan_of(of, other).source_hash() != hash);
    }
    CHECK(plan_of(of, texts, KernelTarget::emulator).source_hash() != hash);
  }
}

TEST_CASE("the first line of every kernel names its class and its hash", "[nogpu]") {
  const DeviceSpec& device = find_device("h200");
  std::vector<KernelLaunch> launches;
  const auto add = [&](const KernelPlan& plan) {
    for (const KernelLaunch& launch : plan.launches) {
      CHECK(launch.source.starts_with("// attune " + plan.kernel_class + " · source "));
      launches.push_back(launch);
    }
  };
  for (const Case& of : kCases) add(plan_of(of, TemplateSet::embedded().texts()));
  const AttentionProblem problem = parse_problem("sq1024 d64"), backward = parse_problem("backward sq1024 d64");
  add(generate(problem, parse_algorithm("fa1"), device));
  add(generate_reference(problem, device));
  for (const KernelLaunch& launch : generate_backward_reference(backward, device)) launches.push_back(launch);
  launches.push_back(generate_comparison(operand_shape(problem, Operand::o), device));
  launches.push_back(generate_checksum(device));
  launches.push_back(generate_random_normal(DataType::fp16, device));
  for (const KernelLaunch& launch : launches) {
    INFO(launch.entry);
    CHECK(launch.source_hash == hash_of_source(launch.source));
    const std::string head = launch.source.substr(0, launch.source.find('\n'));
    CHECK(head.starts_with(kHeadMark));
    CHECK(head.ends_with(" · source " + launch.source_hash));
    CHECK(launch.lines.size() ==
          static_cast<std::size_t>(std::count(launch.source.begin(), launch.source.end(), '\n')));
  }
}

TEST_CASE("a plan's provenance is that of its launches in their order", "[nogpu]") {
  KernelPlan plan = plan_of(kCases[0], TemplateSet::embedded().texts());
  REQUIRE(plan.launches.size() == 1);
  CHECK(plan.source_hash() == plan.launches[0].source_hash);
  KernelPlan several = plan_of(kCases[2], TemplateSet::embedded().texts());
  REQUIRE(several.launches.size() > 1);
  const std::string hash = several.source_hash();
  std::swap(several.launches[0], several.launches[1]);
  CHECK(several.source_hash() != hash);
  std::swap(several.launches[0], several.launches[1]);
  CHECK(several.source_hash() == hash);
  several.launches.pop_back();
  CHECK(several.source_hash() != hash);
}

}  // namespace source_hash_test
