#pragma once

#include "generator/families/backward_common/delta.h"
#include "generator/plan/kernel_plan.h"
#include "generator/problem/attention_problem.h"
#include "generator/text/renderer.h"

namespace attune {

/// When the kernel of the sinks' gradient runs.
enum class SinksStart {
  after,         ///< the launch before it
  programmatic,  ///< the same, but that it may begin before and waits
  beside,        ///< the launch before it, a convert_launch() that is `followed`, for whose end it waits at its own
};

/// The launch of kernels/backward_sinks, not rendered yet, which reads the statistics that delta_launch() with the same
/// arguments leaves, and what its template is bound to.
KernelLaunch sinks_launch(const AttentionProblem& problem, int block_q, StatisticsOrder order, SinksStart start,
                          TemplateBindings* bindings);

}  // namespace attune
