#pragma once

#include <algorithm>
#include <cstdint>

#include "generator/plan/kernel_plan.h"

/// The arithmetic of a launch, of plain numbers. It is a template, since exported launchers hold the very same text.
/// Only the generator's own sources include it.
namespace attune::launch_rules {

#include "templates/export/launch_rules.cu"

Call call_of(const AttentionProblem& problem);
Split split_of(const KeySplit& split);
Launch launch_of(const KernelLaunch& launch, const AttentionProblem& problem);
Buffer buffer_of(const WorkspaceBuffer& buffer);

}  // namespace attune::launch_rules
