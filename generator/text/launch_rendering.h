#pragma once

#include <string>

#include "generator/device/device_spec.h"
#include "generator/plan/kernel_plan.h"
#include "generator/text/renderer.h"
#include "generator/text/template_set.h"

namespace attune {

/// Renders kernels/<name> into a launch whose arguments are set: source, its hash, entry ("attune_<name>", unless it is
/// set), architecture and target. The first line of the source is the generator's: `// attune <kernel class> · source
/// <hash>`; of primitives it holds those that the kernel uses, and all of it is in a namespace of its own. `bindings`
/// lacks only what every kernel names: entry, target, arguments. Of TemplateSet::none() only entry, architecture and
/// target are set. Throws Error(template_error).
void render_launch(const std::string& name, const std::string& kernel_class, const DeviceSpec& device,
                   const TemplateSet& templates, KernelTarget target, TemplateBindings bindings, KernelLaunch* launch);

}  // namespace attune
