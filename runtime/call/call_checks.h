#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "attune/attention.h"

namespace attune {

/// What a call is refused for before anything is looked up or launched: each throws Error(invalid_argument).

/// Null pointers, and addresses that no element can have.
void require_tensors(const Tensors& tensors, const AttentionProblem& problem);
void require_pass(const AttentionProblem& problem, Pass pass);
/// A workspace that is too small for the plan, or starts where its buffers cannot.
void require_workspace(const KernelPlan& plan, const AttentionProblem& problem, const void* workspace,
                       std::size_t bytes);

/// Why calls of the problem, who bring the workspace that most_workspace_bytes() says, cannot run the plan; empty if
/// they can.
std::string lacking_workspace(const KernelPlan& plan, const AttentionProblem& problem, const DeviceSpec& device);

/// The problem as the plan runs it on tensors of that alignment. Throws where it cannot, Error(infeasible_config) where
/// its config does not fit.
AttentionProblem require_fit(const KernelPlan& plan, const AttentionProblem& asked, int alignment,
                             const DeviceSpec& device);

/// Reasons as one sentence.
std::string joined(const std::vector<std::string>& reasons);

}  // namespace attune
