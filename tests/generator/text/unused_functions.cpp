#include "generator/text/unused_functions.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>

#include "generator/generate.h"
#include "generator/ladder/attention_algorithm.h"
#include "generator/oracle/oracle_kernels.h"
#include "tests/catch.h"

using namespace attune;

namespace {

// What is left of primitives before a kernel's text; the text's lines keep their numbers.
std::string kept(const std::string& primitives, const std::string& kernel) {
  RenderedText text = render(
      TemplateSet({{"kernel", "//% include primitives/x\n" + kernel}, {"primitives/x", primitives}}), "kernel", {});
  const std::size_t kernel_lines = static_cast<std::size_t>(std::count(kernel.begin(), kernel.end(), '\n'));
  drop_unused_functions(&text);
  REQUIRE(text.text.ends_with(kernel));
  std::string left = text.text.substr(0, text.text.size() - kernel.size());
  REQUIRE(text.lines.size() == static_cast<std::size_t>(std::count(text.text.begin(), text.text.end(), '\n')));
  REQUIRE(text.lines.back().file == "kernel");
  REQUIRE(text.lines.back().line == static_cast<int>(1 + kernel_lines));
  return left;
}

// Functions that a source defines before its arguments, and how often each word stands in its code.
std::set<std::string> unused_functions(const std::string& source) {
  std::string code = std::regex_replace(source, std::regex("\"(\\\\.|[^\"\\\\])*\"|//[^\n]*"), "");
  std::map<std::string, int> count;
  const std::regex word("\\w+"), definition("\n(?:__device__ __forceinline__|inline) \\w+ (\\w+)\\(");
  for (std::sregex_iterator i(code.begin(), code.end(), word), end; i != end; ++i) ++count[i->str()];
  std::set<std::string> unused;
  const std::string before = code.substr(0, code.find("struct Arguments"));
  for (std::sregex_iterator i(before.begin(), before.end(), definition), end; i != end; ++i) {
    if (count[(*i)[1]] == 1) unused.insert((*i)[1]);
  }
  return unused;
}

}  // namespace

TEST_CASE("of primitives, what the kernel uses stays, and what that uses", "[nogpu]") {
  const std::string one = "inline int one() { return 1; }\n", two = "inline int two() {\n  return one() + one();\n}\n",
                    kernel = "int kernel() { return two(); }\n";
  CHECK(kept(one + two, kernel) == one + two);
  CHECK(kept(one + two, "int kernel() { return one(); }\n") == one);
  CHECK(kept(one + two, "// two() is in a comment, \"one\" in a string\nconst char* s = \"one() two() // \";\n") == "");
  CHECK(kept(two + one, kernel) == two + one);  // in whatever order
  const std::string type = "struct alignas(16) Pair { int x, y; };\n",
                    user = "template <int kN>\ninline Pair pair_of() {\n  return {};\n}\n";
  CHECK(kept(type + user, "auto p = pair_of<1>();\n") == type + user);
  CHECK(kept(type + user, kernel) == "");
  const std::string constant = "constexpr unsigned kLanes = 32;\n", alias = "using i32 = int;\n",
                    kind = "enum class Kind : i32 { a, b };\n";
  CHECK(kept(constant + alias + kind, "unsigned x = kLanes;\n") == constant);
  CHECK(kept(constant + alias + kind, "Kind kind = Kind::a;\n") == alias + kind);
  // What others call by its C name, macros, and assertions stay, with what they need.
  const std::string entry = "extern \"C\" int entry() { return one(); }\n";
  CHECK(kept(one + entry + two, "int x;\n") == one + entry);
  CHECK(kept("#define X\nstatic_assert(1);\n" + one, "int x;\n") == "#define X\nstatic_assert(1);\n");
  // Brackets in strings are none.
  const std::string braces = "inline void braces() {\n  asm(\"{\\n\"\n      \"}\");\n}\n";
  CHECK(kept(braces + one, "int x = one();\n") == one);
}

TEST_CASE("a comment stays with the functions that follow it", "[nogpu]") {
  const std::string about_both = "// About both.\ninline int a() { return 1; }\ninline int b() { return 2; }\n";
  CHECK(kept(about_both, "int x = b();\n") == "// About both.\ninline int b() { return 2; }\n");
  CHECK(kept(about_both, "int x;\n") == "");
  const std::string next = "\n// About c.\ninline int c() { return 3; }\n\ninline int d() { return 4; }\n";
  CHECK(kept(about_both + next, "int x = a() + d();\n") ==
        "// About both.\ninline int a() { return 1; }\n\ninline int d() { return 4; }\n");
  CHECK(kept("// A heading.\n\n" + about_both, "int x = a();\n") ==
        "// A heading.\n\n// About both.\ninline int a() { return 1; }\n");
}

TEST_CASE("no kernel holds a primitive that it does not use", "[nogpu]") {
  const DeviceSpec& device = find_device("h200");
  for (const KernelTarget target : {KernelTarget::cuda, KernelTarget::emulator}) {
    std::vector<KernelLaunch> launches;
    const auto add = [&](std::vector<KernelLaunch> more) {
      launches.insert(launches.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
    };
    const auto of = [&](const char* problem, const char* config) {
      add(generate(parse_problem(problem), parse_config(config), device, TemplateSet::embedded(), target).launches);
    };
    of("sq1024 d64 causal", "sm80 q128 kv64 w4 st2");
    of("sq1024 d72 align2", "sm80 q64 kv64 w4 st1 qsmem");
    of("sq1024 d128 causal", "sm90 q128 kv64 st2");
    of("sq1024 d128",
       "sm90 q128 kv80 st2 order=tile-major-reversed rescale10 overlap=within scheduler=dynamic-persistent vst1 "
       "cluster2");
    of("backward hq8 hkv2 sq1024 d64 causal", "sm80 q64 kv64 w4 st2 query-warps2 dq=atomic kv-grad-per-query-head");
    of("backward sq1000 d72", "sm80 q64 kv64 w4 st2");
    const AttentionProblem problem = parse_problem("sq1024 d64"), backward = parse_problem("backward sq1024 d64");
    add(generate(problem, parse_algorithm("standard"), device, TemplateSet::embedded(), target).launches);
    add(generate_reference(problem, device, TemplateSet::embedded(), target).launches);
    add(generate_backward_reference(backward, device, TemplateSet::embedded(), target));
    add({generate_comparison(operand_shape(problem, Operand::o), device, TemplateSet::embedded(), target),
         generate_checksum(device, TemplateSet::embedded(), target),
         generate_random_normal(DataType::bf16, device, TemplateSet::embedded(), target)});
    for (const KernelLaunch& launch : launches) {
      INFO(launch.source.substr(0, launch.source.find('\n')));
      CHECK(unused_functions(launch.source) == std::set<std::string>());
    }
  }
}

TEST_CASE("each kernel stands in a namespace of its own, which its text names", "[nogpu]") {
  const DeviceSpec& device = find_device("h200");
  std::set<std::string> names;
  for (const char* config : {"sm80 q128 kv64 w4 st2", "sm80 q128 kv64 w4 st1", "sm90 q128 kv64 st2"}) {
    const std::string source =
        generate(parse_problem("sq1024 d64"), parse_config(config), device).launches.at(0).source;
    std::smatch match;
    REQUIRE(std::regex_search(source, match, std::regex("\n\nnamespace (attune_[0-9a-f]{16}) \\{\n")));
    CHECK(source.ends_with("\n}  // namespace " + match[1].str() + "\n"));
    CHECK(names.insert(match[1]).second);
  }
}
