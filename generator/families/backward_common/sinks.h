#pragma once

#include "generator/families/backward_common/delta.h"
#include "generator/plan/kernel_plan.h"
#include "generator/problem/attention_problem.h"
#include "generator/text/renderer.h"

namespace attune {

/// The launch of kernels/backward_sinks, not rendered yet, which reads the statistics that delta_launch() with the same
/// arguments leaves, and what its template is bound to.
KernelLaunch sinks_launch(const AttentionProblem& problem, int block_q, StatisticsOrder order,
                          TemplateBindings* bindings);

}  // namespace attune
