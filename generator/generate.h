#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "generator/config/kernel_config.h"
#include "generator/device/device_spec.h"
#include "generator/families/kernel_family.h"
#include "generator/plan/kernel_plan.h"
#include "generator/problem/attention_problem.h"
#include "generator/text/template_set.h"

namespace attune {

/// Why a config cannot serve a problem on a device, one sentence per reason, each naming the numbers; empty if it can.
std::vector<std::string> infeasibility(const AttentionProblem& problem, const KernelConfig& config,
                                       const DeviceSpec& device);

/// The same of a config that fits another problem of this pass: what depends on the config alone is not asked again,
/// for each call of the library with another length asks.
std::vector<std::string> infeasibility_of_prepared(const AttentionProblem& problem, const KernelConfig& config,
                                                   const DeviceSpec& device);

/// A config that was made for another problem as near as it fits this one, and what of it was changed (see
/// KernelFamily::adapt). Nothing if no such change makes it fit.
std::optional<Adaptation> adapted(const AttentionProblem& problem, const KernelConfig& config,
                                  const DeviceSpec& device);

/// The plan of a feasible config. Pure: the same values give the same bytes on any machine. With TemplateSet::none()
/// its launches have no sources. Throws Error(invalid_argument) for an invalid problem, Error(infeasible_config) with
/// the reasons, Error(template_error).
KernelPlan generate(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device,
                    const TemplateSet& templates = TemplateSet::embedded(), KernelTarget target = KernelTarget::cuda);

/// The most workspace that a plan of the problem needs on the device, whichever config of config_space() it has or is
/// picked from a neighbour, and (forward) whatever the length of keys up to 2^17; for longer rows it is more.
std::size_t most_workspace_bytes(const AttentionProblem& problem, const DeviceSpec& device);

/// The naive kernel in double precision that large shapes are checked against (O, LSE and sum(p |v|), each as double).
KernelPlan generate_reference(const AttentionProblem& problem, const DeviceSpec& device,
                              const TemplateSet& templates = TemplateSet::embedded(),
                              KernelTarget target = KernelTarget::cuda);

/// Why no kernel serves a problem on a device, in a sentence that says what to do: the one answer for all who ask
/// before they call. Empty if one does. Takes as long as default_config().
std::string unsupported(const AttentionProblem& problem, const DeviceSpec& device);

/// A feasible config that is good without any measurement: of the families' own defaults the one that the cost model
/// likes best. Throws Error(unsupported) on a device that no family supports.
KernelConfig default_config(const AttentionProblem& problem, const DeviceSpec& device);

}  // namespace attune
