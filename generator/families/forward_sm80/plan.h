#pragma once

#include "generator/config/kernel_config.h"
#include "generator/device/device_spec.h"
#include "generator/plan/kernel_plan.h"
#include "generator/problem/attention_problem.h"
#include "generator/text/renderer.h"
#include "generator/text/template_set.h"

namespace attune {

/// What templates/kernels/forward_sm80 names, for a feasible config.
TemplateBindings forward_sm80_bindings(const AttentionProblem& problem, const KernelConfig& config);

/// The one launch of a forward plan of the sm80 family.
KernelLaunch forward_sm80_launch(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device,
                                 const TemplateSet& templates, KernelTarget target);

}  // namespace attune
