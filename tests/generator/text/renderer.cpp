#include "generator/text/renderer.h"

#include "generator/error.h"
#include "tests/catch.h"

using namespace attune;

namespace {
using Texts = std::map<std::string, std::string>;

std::string rendered(const Texts& texts, const TemplateBindings& bindings = {}) {
  return render(TemplateSet(texts), "root", bindings).text;
}

std::string complaint(const Texts& texts, const TemplateBindings& bindings = {}) {
  try {
    render(TemplateSet(texts), "root", bindings);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::template_error);
    return error.what();
  }
  return "no error";
}
}  // namespace

TEST_CASE("values are substituted", "[nogpu]") {
  TemplateBindings bindings;
  bindings.set("block_q", 128);
  bindings.set("name", "tile");
  CHECK(rendered({{"root", "int ${name}_q = ${block_q};\n${name}"}}, bindings) == "int tile_q = 128;\ntile\n");
  CHECK(rendered({{"root", "a $ b {{1}} $x } ok\n"}}) == "a $ b {{1}} $x } ok\n");
  CHECK(rendered({{"root", ""}}).empty());
}

TEST_CASE("an include is indented whole, and its own includes further", "[nogpu]") {
  TemplateBindings bindings;
  bindings.set("kind", "causal");
  const Texts texts = {{"root", "{\n  //% include masks/${kind}\n}\n"},
                       {"masks/causal", "first\n\n  //% include inner\nlast\n"},
                       {"inner", "x\ny\n"}};
  CHECK(rendered(texts, bindings) == "{\n  first\n\n    x\n    y\n  last\n}\n");
}

TEST_CASE("each line knows where it comes from", "[nogpu]") {
  TemplateBindings bindings;
  bindings.set("two", "1\n2");
  const RenderedText text =
      render(TemplateSet({{"root", "a\n//% -- for readers\n//% include part\nb ${two}\n"}, {"part", "c\nd\n"}}), "root",
             bindings);
  CHECK(text.text == "a\nc\nd\nb 1\n  2\n");
  REQUIRE(text.lines.size() == 5);
  const std::vector<std::pair<std::string, int>> expected = {
      {"root", 1}, {"part", 1}, {"part", 2}, {"root", 4}, {"root", 4}};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(text.lines[i].file == expected[i].first);
    CHECK(text.lines[i].line == expected[i].second);
  }
}

TEST_CASE("a value of several lines continues below where it began", "[nogpu]") {
  TemplateBindings bindings;
  bindings.set("lines", "Q\nK");
  CHECK(rendered({{"root", "struct {\n  ${lines}\n};\n"}}, bindings) == "struct {\n  Q\n  K\n};\n");
  CHECK(rendered({{"root", "  // Größe: ${lines}\n"}}, bindings) == "  // Größe: Q\n  //        K\n");
}

TEST_CASE("conditions and loops", "[nogpu]") {
  TemplateBindings bindings;
  bindings.conditions = {{"yes", true}, {"no", false}};
  CHECK(rendered({{"root",
                   "//% if yes\na\n//% else\nb\n//% end\n//% if !yes\nc\n//% end\n  //% if no\nd\n  //% else\ne\n  //% "
                   "end\n"}},
                 bindings) == "a\ne\n");
  bindings = {};
  bindings.lists["field"] = {{{"type", "int"}, {"name", "a"}}, {{"type", "float"}, {"name", "b"}}};
  bindings.lists["none"] = {};
  CHECK(rendered(
            {{"root", "//% for field\n  ${field.type} ${field.name};\n//% end\n//% for none\n${none.key}\n//% end\n"}},
            bindings) == "  int a;\n  float b;\n");
}

TEST_CASE("undeclared names and wrong kinds", "[nogpu]") {
  CHECK_THAT(complaint({{"root", "a\n${block_q}\n"}}),
             ContainsSubstring("root:2: the value 'block_q' is not declared"));
  CHECK_THAT(complaint({{"root", "//% if fast\n//% end\n"}}),
             ContainsSubstring("root:1: the condition 'fast' is not declared"));
  CHECK_THAT(complaint({{"root", "\n//% for fields\n//% end\n"}}),
             ContainsSubstring("root:2: the list 'fields' is not declared"));
  TemplateBindings bindings;
  bindings.set("x", "1");
  CHECK_THAT(complaint({{"root", "//% if x\n//% end\n"}}, bindings),
             ContainsSubstring("'x' is a value, but is used as a condition"));
  bindings.lists["item"] = {{{"key", "1"}}};
  CHECK_THAT(complaint({{"root", "${x}\n//% for item\n${item.other}\n//% end\n"}}, bindings),
             ContainsSubstring("root:3: the key 'item.other' is not declared"));
  CHECK_THAT(complaint({{"root", "${x} ${item.key}\n"}}, bindings),
             ContainsSubstring("root:1: '${item.key}' outside of '//% for item'"));
  CHECK_THAT(complaint({{"root", "//% for item\n//% for item\n//% end\n//% end\n"}}, bindings),
             ContainsSubstring("root:2: a loop over 'item'"));
}

TEST_CASE("a branch that is not taken is checked all the same", "[nogpu]") {
  TemplateBindings bindings;
  bindings.conditions["no"] = false;
  CHECK_THAT(complaint({{"root", "//% if no\n${typo}\n//% end\n"}}, bindings),
             ContainsSubstring("root:2: the value 'typo'"));
  CHECK_THAT(complaint({{"root", "//% if no\n//% include typo\n//% end\n"}}, bindings),
             ContainsSubstring("root:2: there is no template 'typo'"));
  bindings.set("used_there", "x");
  CHECK(rendered({{"root", "//% if no\n//% include part\n//% end\n"}, {"part", "${used_there}\n"}}, bindings).empty());
}

TEST_CASE("includes that cannot be", "[nogpu]") {
  CHECK_THAT(complaint({{"root", "a\nb\n  //% include gone\n"}}),
             ContainsSubstring("root:3: there is no template 'gone' to include"));
  CHECK_THAT(complaint({{"other", ""}}), ContainsSubstring("there is no template 'root'"));
  CHECK_THAT(complaint({{"root", "//% include root\n"}}), ContainsSubstring("root:1: 'root' includes itself"));
  CHECK_THAT(complaint({{"root", "//% include a\n"}, {"a", "\n//% include b\n"}, {"b", "//% include a\n"}}),
             ContainsSubstring("b:1: 'a' includes itself (included from a:2) (included from root:1)"));
  CHECK_THAT(complaint({{"root", "//% include a\n//% include a\n"}, {"a", "x\n"}}),
             ContainsSubstring("root:2: 'a' is included a second time"));
}

TEST_CASE("malformed directives", "[nogpu]") {
  const auto error = [](const std::string& text) { return complaint({{"root", text}}); };
  CHECK_THAT(error("x\n//% when a\n"), ContainsSubstring("root:2: unknown directive '//% when'"));
  CHECK_THAT(error("//%\n"), ContainsSubstring("root:1: unknown directive"));
  CHECK_THAT(error("//%include a\n"), ContainsSubstring("root:1: '//%' must be followed by a blank"));
  CHECK_THAT(error("//% include\n"), ContainsSubstring("root:1: '//% include' takes one name"));
  CHECK_THAT(error("//% include a b\n"),
             ContainsSubstring("root:1: '//% include' takes one name, but is followed by 'a b'"));
  CHECK_THAT(error("//% if\n//% end\n"), ContainsSubstring("root:1: '//% if' takes one name"));
  CHECK_THAT(error("int x; //% include a\n"), ContainsSubstring("root:1: a directive must be alone on its line"));
  CHECK_THAT(error("//% if a\nx\n"), ContainsSubstring("root:1: '//% if a' has no '//% end'"));
  CHECK_THAT(error("//% for a\nx\n"), ContainsSubstring("root:1: '//% for a' has no '//% end'"));
  CHECK_THAT(error("x\n//% end\n"), ContainsSubstring("root:2: '//% end' without"));
  CHECK_THAT(error("//% else\n"), ContainsSubstring("root:1: '//% else' without"));
  CHECK_THAT(error("//% for a\n//% else\n//% end\n"), ContainsSubstring("root:2: '//% else' inside '//% for a'"));
  CHECK_THAT(error("//% if a\n//% else\n//% else\n//% end\n"), ContainsSubstring("root:3: a second '//% else'"));
  CHECK_THAT(error("//% if a\n//% end if\n"), ContainsSubstring("root:2: '//% end' takes no argument"));
  CHECK_THAT(error("a ${b\n"), ContainsSubstring("root:1: '${b' has no closing brace"));
  CHECK_THAT(error("${}\n"), ContainsSubstring("root:1: '${}' does not hold a name"));
  CHECK_THAT(error("${a b}\n"), ContainsSubstring("root:1: '${a b}' does not hold a name"));
}

TEST_CASE("an error in a partial names the partial and who included it", "[nogpu]") {
  CHECK_THAT(complaint({{"root", "\n//% include part\n"}, {"part", "a\n\n${x}\n"}}),
             ContainsSubstring("part:3: the value 'x' is not declared (included from root:2)"));
}

TEST_CASE("what is bound must be used", "[nogpu]") {
  TemplateBindings bindings;
  bindings.set("unused", "1");
  CHECK_THAT(complaint({{"root", "a\n"}}, bindings), ContainsSubstring("root: the value 'unused' is bound, but"));
  bindings = {};
  bindings.conditions["unused"] = true;
  CHECK_THAT(complaint({{"root", "a\n"}}, bindings), ContainsSubstring("the condition 'unused' is bound, but"));
  bindings = {};
  bindings.lists["item"] = {{{"a", "1"}, {"b", "2"}}};
  CHECK_THAT(complaint({{"root", "a\n"}}, bindings), ContainsSubstring("the list 'item' is bound, but"));
  CHECK_THAT(complaint({{"root", "//% for item\n${item.a}\n//% end\n"}}, bindings),
             ContainsSubstring("'item.b' is bound, but"));
}

TEST_CASE("a name is declared once", "[nogpu]") {
  TemplateBindings bindings;
  bindings.set("x", "1");
  bindings.conditions["x"] = true;
  CHECK_THAT(complaint({{"root", "${x}\n"}}, bindings),
             ContainsSubstring("'x' is bound both as value and as condition"));
  bindings = {};
  bindings.set("a.b", "1");
  CHECK_THAT(complaint({{"root", ""}}, bindings), ContainsSubstring("'a.b' is bound, but that is no name"));
}
