#pragma once

#include <cstddef>

#include "generator/config/kernel_config.h"
#include "generator/device/device_spec.h"
#include "generator/plan/kernel_plan.h"
#include "generator/problem/attention_problem.h"
#include "generator/text/template_set.h"

namespace attune {

/// Adds the launches of a backward plan of the sm90 family, its workspace and its ordered outputs. The config is
/// feasible for the problem.
void describe_backward_sm90(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device,
                            const TemplateSet& templates, KernelTarget target, KernelPlan* plan);

/// The most bytes that a plan of the family takes whose config was picked or searched for the problem.
std::size_t backward_sm90_most_workspace_bytes(const AttentionProblem& problem, const DeviceSpec& device);

}  // namespace attune
