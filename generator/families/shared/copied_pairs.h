#pragma once

#include <string>
#include <vector>

#include "generator/device/device_spec.h"
#include "generator/families/kernel_family.h"
#include "generator/plan/kernel_plan.h"
#include "generator/text/template_set.h"

namespace attune {

// What families share of KernelConfig::copied_pairs: the kernels that copy tensors of pairs, of which the plan says
// where they leave them.

/// Whether rows of a tensor of pairs, packed, begin where no tensor map has them.
bool has_unaligned_rows(const AttentionProblem& problem, Operand operand);
/// Whether those of any input of the problem do.
bool has_unaligned_pairs(const AttentionProblem& problem);

/// A part of infeasibility().
void check_copied_pairs(const AttentionProblem& problem, const KernelConfig& config, std::vector<std::string>* reasons);

/// Adds the launches of kernels/copy_pairs before all others, and their buffers behind all others, where the config
/// asks for them.
void add_copied_pairs(const DeviceSpec& device, const TemplateSet& templates, KernelTarget target, KernelPlan* plan);
/// The largest buffers that a config of plan->problem may have.
void add_most_copied_pairs(KernelPlan* plan);

/// The values of the field beside so many stages that a space offers.
std::vector<bool> copied_pairs_choices(const AttentionProblem& problem, int pair_stages);

/// What the copies take.
double copied_pairs_microseconds(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device);

}  // namespace attune
