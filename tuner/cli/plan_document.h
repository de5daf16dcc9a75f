#pragma once

#include "generator/plan/kernel_plan.h"
#include "tuner/cli/output.h"

namespace attune::cli {

/// All that a launch of the plan's own problem needs to know, with tensors that are packed as the problem says: work,
/// workspace, and of each launch grid, CTA, cluster, shared memory, parameters in their order, and tensor maps.
Json plan_document(const KernelPlan& plan);

}  // namespace attune::cli
