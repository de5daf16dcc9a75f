#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "generator/config/kernel_config.h"
#include "generator/device/device_spec.h"
#include "generator/plan/kernel_plan.h"
#include "generator/problem/attention_problem.h"
#include "generator/text/template_set.h"

namespace attune {

/// What backward plans keep in the workspace.
inline constexpr Buffer kStatistics{"statistics", "float*"};  ///< two of each query: LSE * log2(e) and delta
/// dQ / scale, in the order of elements that backward/sums_* define; dK / scale and dV the same, over the query heads
/// of a group.
inline constexpr Buffer kDqSums{"d_q_sums", "float*"}, kDkSums{"d_k_sums", "float*"}, kDvSums{"d_v_sums", "float*"};
inline constexpr Buffer kDqTickets{"dq_tickets", "u32*"};  ///< tiles of keys that have added to a block of queries
inline constexpr Buffer kDkdvTickets{"dkdv_tickets",
                                     "u32*"};  ///< query heads of the group that have added to a tile of keys

/// KernelLaunch::section_heads() of the kernel of key tiles, were its order sections.
std::int32_t backward_section_heads(const AttentionProblem& problem, const KernelConfig& config,
                                    const DeviceSpec& device);

/// Launches, workspace and ordered outputs: delta; dK and dV, or their sums where heads are apart, by tiles of keys; dQ
/// by tiles of queries, or its sums by the kernel before; the conversions of sums. All are ordered but sums that grow
/// as CTAs come.
void describe_backward_sm80(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device,
                            const TemplateSet& templates, KernelTarget target, KernelPlan* plan);

/// workspace_bytes_of() of any plan of the problem, at most.
std::size_t backward_sm80_most_workspace_bytes(const AttentionProblem& problem);

}  // namespace attune
