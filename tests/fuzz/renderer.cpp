// Template texts: the input's parts, between lines that begin with "====", are the templates root, a, b and c.
#include "generator/text/renderer.h"

#include "tests/fuzz/fuzz_target.h"

using namespace attune;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr const char* kNames[] = {"root", "a", "b", "c"};
  std::map<std::string, std::string> texts;
  std::string_view rest = fuzz::text_of(data, size);
  for (const char* name : kNames) {
    const std::size_t end = rest.find("====\n");
    texts[name] = std::string(rest.substr(0, end));
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 5);
  }
  const TemplateSet templates(std::move(texts));
  TemplateBindings bindings;
  bindings.set("value", "one");
  bindings.set("lines", "first\nsecond");
  bindings.set("partial", "b");
  bindings.conditions = {{"yes", true}, {"no", false}};
  bindings.lists["list"] = {{{"x", "1"}}, {{"x", "2"}}};
  fuzz::accepts([&] {
    const RenderedText rendered = render(templates, "root", bindings);
    std::size_t lines = 0;
    for (const char c : rendered.text) lines += c == '\n';
    fuzz::require(rendered.lines.size() >= lines);
  });
  return 0;
}
