#include "generator/text/source_layout.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "generator/generate.h"
#include "generator/text/source_tokens.h"
#include "generator/text/template_set.h"
#include "tests/catch.h"

using namespace attune;

namespace source_layout_test {
namespace {

RenderedText text_of(const std::string& source) {
  RenderedText text{source, {}};
  for (int line = 1; line <= std::count(source.begin(), source.end(), '\n'); ++line) text.lines.push_back({"x", line});
  return text;
}

std::string laid_out(const std::string& source) {
  RenderedText text = text_of(source);
  lay_out(&text);
  REQUIRE(text.lines.size() == static_cast<std::size_t>(std::count(text.text.begin(), text.text.end(), '\n')));
  return text.text;
}

std::size_t columns_of(std::string_view line) {
  return static_cast<std::size_t>(std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

const std::string kLong(70, 'x'), kOther(60, 'y');

}  // namespace

TEST_CASE("paragraphs of comments are filled where a line is too long", "[nogpu]") {
  const std::string half = "// " + kLong + "\n";
  CHECK(laid_out(half + half) == half + half);
  CHECK(laid_out("  // " + kLong + " " + kOther + " a\n  // b\n") == "  // " + kLong + "\n  // " + kOther + " a b\n");
  const std::string formula = "//   " + kLong + kLong + "\n", point = "// - " + kLong + "\n";
  CHECK(laid_out(formula + formula) == formula + formula);
  CHECK(laid_out("// " + kLong + " " + kOther + "\n" + point + formula) ==
        "// " + kLong + "\n// " + kOther + "\n" + point + formula);
  // Columns are not bytes.
  std::string wide = "// ";
  for (int i = 0; i < 100; ++i) wide += "\xe1\xb5\x80";
  CHECK(laid_out(wide + " a\n") == wide + " a\n");
}

TEST_CASE("comments of two templates stay two", "[nogpu]") {
  RenderedText text = text_of("// " + kLong + " " + kOther + "\n// b\n");
  text.lines[1].file = "y";
  lay_out(&text);
  CHECK(text.text == "// " + kLong + "\n// " + kOther + "\n// b\n");
  CHECK(text.lines[1].file == "x");
  CHECK(text.lines[2].file == "y");
}

TEST_CASE("long lines of code are broken where brackets are nested least", "[nogpu]") {
  CHECK(laid_out("  f(" + kLong + ", " + kOther + ");\n") == "  f(" + kLong + ",\n      " + kOther + ");\n");
  CHECK(laid_out("  x = f(" + kLong + ", a) + " + kOther + ";\n") ==
        "  x = f(" + kLong + ", a) +\n      " + kOther + ";\n");
  CHECK(laid_out("i32 f(i32 " + kLong + ") { g(" + kOther + "); return 1; }\n") ==
        "i32 f(i32 " + kLong + ") {\n  g(" + kOther + ");\n  return 1;\n}\n");
  CHECK(laid_out("  for (i32 i = 0; i < " + kLong + "; ++i) g(" + kOther + ");\n") ==
        "  for (i32 i = 0; i < " + kLong + "; ++i)\n    g(" + kOther + ");\n");
  CHECK(laid_out("  S(i32 a) : " + kLong + "(a), " + kOther + "(a) {}\n") ==
        "  S(i32 a)\n      : " + kLong + "(a),\n        " + kOther + "(a) {}\n");
  CHECK(laid_out("extern \"C\" __global__ void __launch_bounds__(kThreads, kCtas) " + kLong +
                 "(const Arguments args) {\n") ==
        "extern \"C\" __global__ void __launch_bounds__(kThreads, kCtas)\n    " + kLong + "(const Arguments args) {\n");
  CHECK(laid_out("  " + kLong + " = 1;  // " + kOther + "\n") == "  // " + kOther + "\n  " + kLong + " = 1;\n");
  CHECK(laid_out("  f(" + kLong + " >> 2, u >> 3); g(" + kOther + ");\n") ==
        "  f(" + kLong + " >> 2, u >> 3);\n      g(" + kOther + ");\n");
}

TEST_CASE("what continues a line that is too long is broken with it", "[nogpu]") {
  CHECK(laid_out("void f(i32 " + kLong + ", i32 " + kOther + ",\n          i32 a) {\n") ==
        "void f(i32 " + kLong + ",\n    i32 " + kOther + ", i32 a) {\n");
  const std::string fits = "void f(i32 a,\n       i32 b) {\n";
  CHECK(laid_out(fits) == fits);
}

TEST_CASE("literals, directives and what continues behind a backslash stay as they are", "[nogpu]") {
  for (const std::string& line :
       {"  f(\"" + kLong + ", " + kOther + " // \");\n", "#define F(a) " + kLong + ", " + kOther + "\n",
        "  " + kLong + ", " + kOther + " \\\n"})
    CHECK(laid_out(line) == line);
}

TEST_CASE("a blank line stands before each struct, and never two", "[nogpu]") {
  const std::string before = "i32 f();\n", type = "// An A.\ntemplate <i32 kN>\nstruct A {\n};\n";
  CHECK(laid_out(before + type) == before + "\n" + type);
  CHECK(laid_out(before + "\n" + type) == before + "\n" + type);
  CHECK(laid_out(before + "\n\n\n" + before) == before + "\n" + before);
  CHECK(laid_out("struct Vec { i32 x; };\n" + before) == "struct Vec { i32 x; };\n" + before);
}

TEST_CASE("no token of any template is changed, and no line of a kernel is too long", "[nogpu]") {
  int checked = 0;
  for (const auto& [name, text] : TemplateSet::embedded().texts()) {
    INFO(name);
    const std::optional<std::string> tokens = source_tokens(text);
    if (!tokens) continue;
    ++checked;
    CHECK(source_tokens(laid_out(text)) == tokens);
  }
  CHECK(checked > 100);
  for (const char* problem : {"forward bf16 b2 hq4 hkv2 sq4096 d128 causal softcap30 sink used",
                              "backward fp16 b2 hq4 hkv2 sq4096 d64 causal alibi dropout0.1 packed",
                              "backward bf16 b2 hq4 sq300 d256 bias=1hqk bias-gradient deterministic"}) {
    for (const char* target : {"h200", "a100"}) {
      const AttentionProblem asked = parse_problem(problem);
      const DeviceSpec& device = find_device(target);
      const KernelPlan plan = generate(asked, default_config(asked, device), device);
      for (const KernelLaunch& launch : plan.launches) {
        std::string_view source = launch.source;
        source.remove_prefix(source.find('\n') + 1);  // what the kernel was generated for, one line
        while (!source.empty()) {
          const std::string_view line = source.substr(0, source.find('\n'));
          source.remove_prefix(line.size() + 1);
          INFO(launch.entry << ": " << line);
          CHECK((columns_of(line) <= kSourceColumns || line.find('"') != std::string_view::npos));
        }
      }
    }
  }
}

}  // namespace source_layout_test
