#include "generator/text/launch_rendering.h"

#include <fmt/format.h>

#include <cstddef>
#include <utility>

#include "generator/plan/source_hash.h"
#include "generator/text/source_layout.h"
#include "generator/text/unused_functions.h"

namespace attune {
namespace {

// The fields of the argument struct, and its size: what every kernel names.
void bind_arguments(const ArgumentLayout& arguments, TemplateBindings* bindings) {
  bindings->set("argument_bytes", static_cast<std::int64_t>(arguments.bytes));
  auto& fields = bindings->lists["argument_fields"];
  for (const KernelArgument& field : arguments.fields)
    fields.push_back({{"type", std::string(type_text(field))}, {"name", to_string(field)}});
}

// Puts all that follows the comment at the kernel's head into a namespace of its own, so that kernels link into one
// program though each has an Arguments.
void enclose(RenderedText* rendered) {
  std::size_t begin = 0, comment_lines = 0;
  while (rendered->text.compare(begin, 2, "//") == 0) {
    begin = rendered->text.find('\n', begin) + 1;
    ++comment_lines;
  }
  const std::string name = "attune_" + hash_of_source(rendered->text);
  rendered->text = fmt::format("{}\nnamespace {} {{\n{}\n}}  // namespace {}\n", rendered->text.substr(0, begin), name,
                               rendered->text.substr(begin), name);
  std::vector<TemplateLine>& lines = rendered->lines;
  const TemplateLine first = lines.front(), last = lines.back();
  lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(comment_lines), 2, first);
  lines.insert(lines.end(), 2, last);
}

}  // namespace

void render_launch(const std::string& name, const std::string& kernel_class, const DeviceSpec& device,
                   const TemplateSet& templates, KernelTarget target, TemplateBindings bindings, KernelLaunch* launch) {
  const std::string root = "kernels/" + name;
  if (launch->entry.empty()) launch->entry = "attune_" + name;
  launch->arch = arch_name(device);
  launch->target = target;
  if (&templates == &TemplateSet::none()) return;
  bindings.set("entry", launch->entry);
  bindings.set("target", std::string(to_string(target)));
  bind_arguments(launch->arguments, &bindings);
  RenderedText rendered = render(templates, root, bindings);
  drop_unused_functions(&rendered);
  lay_out(&rendered);
  enclose(&rendered);
  const std::string body = "//\n" + rendered.text;
  launch->source_hash = hash_of_source(body);
  launch->source = fmt::format("{}{} · source {}\n{}", kHeadMark, kernel_class, launch->source_hash, body);
  launch->lines.assign(2, {root, 1});
  launch->lines.insert(launch->lines.end(), rendered.lines.begin(), rendered.lines.end());
}

}  // namespace attune
