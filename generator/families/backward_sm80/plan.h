#pragma once

#include <cstddef>

#include "generator/config/kernel_config.h"
#include "generator/device/device_spec.h"
#include "generator/plan/kernel_plan.h"
#include "generator/problem/attention_problem.h"
#include "generator/text/template_set.h"

namespace attune {

/// Launches, workspace and ordered outputs: delta; dK and dV, or their sums where several tiles hold the same keys, by
/// tiles of keys; dQ by tiles of queries, or its sums by the kernel before; the conversions of sums. All are
/// ordered but sums that grow as CTAs come.
void describe_backward_sm80(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device,
                            const TemplateSet& templates, KernelTarget target, KernelPlan* plan);

/// The most bytes that a plan of the family takes whose config was picked or searched for the problem.
std::size_t backward_sm80_most_workspace_bytes(const AttentionProblem& problem, const DeviceSpec& device);

}  // namespace attune
