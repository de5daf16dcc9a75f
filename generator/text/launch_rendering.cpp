#include "generator/text/launch_rendering.h"

#include <fmt/format.h>

#include <utility>

#include "generator/families/shared/bindings.h"
#include "generator/plan/source_hash.h"

namespace attune {

void render_launch(const std::string& name, const std::string& kernel_class, const DeviceSpec& device,
                   const TemplateSet& templates, KernelTarget target, TemplateBindings bindings, KernelLaunch* launch) {
  const std::string root = "kernels/" + name;
  if (launch->entry.empty()) launch->entry = "attune_" + name;
  launch->arch = arch_name(device);
  launch->target = target;
  bindings.set("entry", launch->entry);
  bindings.set("target", std::string(to_string(target)));
  bind_arguments(launch->arguments, &bindings);
  RenderedText rendered = render(templates, root, bindings);
  const std::string body = "//\n" + rendered.text;
  launch->source_hash = hash_of_text(body);
  launch->source = fmt::format("{}{} · source {}\n{}", kHeadMark, kernel_class, launch->source_hash, body);
  launch->lines.assign(2, {root, 1});
  launch->lines.insert(launch->lines.end(), rendered.lines.begin(), rendered.lines.end());
}

}  // namespace attune
