#pragma once

#include "generator/device/device_spec.h"
#include "generator/families/backward_common/delta.h"
#include "generator/plan/kernel_plan.h"
#include "generator/problem/attention_problem.h"
#include "generator/text/renderer.h"

namespace attune {

/// The launch of kernels/backward_bias_sm90, not rendered yet, which reads the statistics that delta_launch() with the
/// same arguments leaves, and what its template is bound to. It serves every problem of the family.
KernelLaunch bias_sm90_launch(const AttentionProblem& problem, const DeviceSpec& device, int block_q,
                              StatisticsOrder order, KernelTarget target, TemplateBindings* bindings);

}  // namespace attune
