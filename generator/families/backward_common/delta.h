#pragma once

#include <cstddef>

#include "generator/config/kernel_config.h"
#include "generator/device/device_spec.h"
#include "generator/plan/kernel_plan.h"
#include "generator/problem/attention_problem.h"
#include "generator/text/renderer.h"

namespace attune {

inline constexpr Buffer kStatistics{"statistics", "float*"};  ///< two of each query: LSE * log2(e) and delta
/// A query's bytes in the workspace and in shared memory.
inline constexpr std::size_t kStatisticsBytes = 2 * sizeof(float);

/// How the statistics of a block of queries lie.
enum class StatisticsOrder {
  pairs,    ///< LSE and delta of a query, then those of the next
  columns,  ///< LSE of all queries, then their deltas; of each 16 queries as lanes of wgmma's fragments hold columns
};

const char* name_of(StatisticsOrder order);  ///< "pairs", "columns": as templates name their parts

/// The launch of kernels/backward_delta, not rendered yet, for the kernel of key tiles of `config`, and what its
/// template is bound to beside the type and the head dim. followed: by a programmatic launch, which may begin when all
/// its CTAs have.
KernelLaunch delta_launch(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device,
                          StatisticsOrder order, bool followed, TemplateBindings* bindings);

}  // namespace attune
