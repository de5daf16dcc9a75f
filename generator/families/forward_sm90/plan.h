#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "generator/config/kernel_config.h"
#include "generator/device/device_spec.h"
#include "generator/families/forward_sm90/shape.h"
#include "generator/plan/kernel_plan.h"
#include "generator/problem/attention_problem.h"
#include "generator/text/renderer.h"
#include "generator/text/template_set.h"

namespace attune {

/// What kernels/forward_sm90 is rendered with. The config is feasible for the problem.
TemplateBindings forward_sm90_bindings(const AttentionProblem& problem, const KernelConfig& config,
                                       const DeviceSpec& device, KernelTarget target);

/// The powers of two by which P, and so its sums, are smaller than the row's maximum says, so that P never exceeds 1.
int forward_sm90_headroom(const AttentionProblem& problem, const KernelConfig& config);

/// How a config splits the keys of its tiles.
KeySplit forward_sm90_split(const ForwardSm90Shape& shape, const KernelConfig& config, const DeviceSpec& device);

/// The launch of a forward plan of the sm90 family, the only one where keys are not split.
KernelLaunch forward_sm90_launch(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device,
                                 const TemplateSet& templates, KernelTarget target);

/// Rows of the CTAs of an SM, at most, whose promoted sums the workspace holds.
constexpr int kPromotedRowsPerSm = 256;

/// Adds to the plan's workspace what the first launch needs: the number of the next tile, and promoted sums.
void describe_forward_sm90_workspace(const KernelConfig& config, const DeviceSpec& device, KernelPlan* plan);

/// The most that a plan of this family takes whose config was picked or searched for the problem. Of the length of keys
/// it depends only by whether rows are long (has_long_rows()).
std::size_t forward_sm90_most_workspace_bytes(const AttentionProblem& problem, const DeviceSpec& device);

}  // namespace attune
