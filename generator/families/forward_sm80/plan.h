#pragma once

#include "generator/config/kernel_config.h"
#include "generator/device/device_spec.h"
#include "generator/families/forward_sm80/shape.h"
#include "generator/plan/kernel_plan.h"
#include "generator/problem/attention_problem.h"
#include "generator/text/renderer.h"
#include "generator/text/template_set.h"

namespace attune {

/// What templates/kernels/forward_sm80 names, for a feasible config, but for what hangs on the device.
TemplateBindings forward_sm80_bindings(const AttentionProblem& problem, const KernelConfig& config);

/// How a config splits the keys of its tiles.
KeySplit forward_sm80_split(const ForwardSm80Shape& shape, const KernelConfig& config, const DeviceSpec& device);

/// key_parts_may_win(); tiles of few warps are too few for the schedulers of an SM sooner.
bool forward_sm80_parts_may_win(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device);

/// The launch of a forward plan of the sm80 family, the only one where keys are not split.
KernelLaunch forward_sm80_launch(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device,
                                 const TemplateSet& templates, KernelTarget target);

}  // namespace attune
