#pragma once

#include "generator/plan/kernel_plan.h"
#include "generator/problem/attention_problem.h"
#include "generator/text/renderer.h"

namespace attune {

inline constexpr Buffer kStatistics{"statistics", "float*"};  ///< two of each query: LSE * log2(e) and delta

/// The launch of kernels/backward_delta, not rendered yet, for tiles of `block_q` queries, and what its template is
/// bound to beside the type and the head dim.
KernelLaunch delta_launch(const AttentionProblem& problem, int block_q, TemplateBindings* bindings);

}  // namespace attune
