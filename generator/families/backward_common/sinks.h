#pragma once

#include "generator/families/backward_common/delta.h"
#include "generator/plan/kernel_plan.h"
#include "generator/problem/attention_problem.h"
#include "generator/text/renderer.h"

namespace attune {

/// The launch of kernels/backward_sinks, not rendered yet, which reads the statistics that delta_launch() with the same
/// arguments leaves, and what its template is bound to. programmatic: it may begin while the kernel before it runs;
/// beside it, which reads the statistics when that one is a convert_launch() that is `followed`.
enum class SinksStart { after, programmatic, beside };
KernelLaunch sinks_launch(const AttentionProblem& problem, int block_q, StatisticsOrder order, SinksStart start,
                          TemplateBindings* bindings);

}  // namespace attune
