#include "generator/text/launch_rendering.h"

#include <utility>

#include "generator/families/shared/bindings.h"

namespace attune {

void render_launch(const std::string& name, const std::string& kernel_class, const DeviceSpec& device,
                   const TemplateSet& templates, KernelTarget target, TemplateBindings bindings, KernelLaunch* launch) {
  const std::string root = "kernels/" + name, target_name(to_string(target));
  if (launch->entry.empty()) launch->entry = "attune_" + name;
  launch->arch = arch_name(device);
  launch->target = target;
  bindings.set("kernel_class", kernel_class);
  bindings.set("templates_hash", templates.hash_of(root, {{"target", target_name}}));
  bindings.set("entry", launch->entry);
  bindings.set("target", target_name);
  bind_arguments(launch->arguments, &bindings);
  RenderedText rendered = render(templates, root, bindings);
  launch->source = std::move(rendered.text);
  launch->lines = std::move(rendered.lines);
}

}  // namespace attune
