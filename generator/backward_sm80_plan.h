#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "generator/attention_problem.h"
#include "generator/device_spec.h"
#include "generator/kernel_config.h"
#include "generator/kernel_plan.h"
#include "generator/template_set.h"

namespace attune {

/// What follows from a config and a head dim for the kernels of a backward plan of the sm80 family. Pure arithmetic.
/// Of a config they know block_q (dQ: each warp owns 16), block_kv (dK and dV: each of `warps` owns block_kv / warps),
/// stages and ctas_per_sm. Assumes fields that pass the first checks of backward_sm80_infeasibility().
struct BackwardSm80Shape {
  int dq_threads = 0, dkdv_threads = 0;
  int column_parts = 1;  ///< of dK and dV: warps that own the same keys
  std::size_t q_tile_bytes = 0, kv_tile_bytes = 0;
  std::size_t dq_shared_bytes = 0, dkdv_shared_bytes = 0;
  int dq_registers = 0, dkdv_registers = 0;  ///< of a thread: accumulators, which cannot live elsewhere
};
BackwardSm80Shape backward_sm80_shape(const AttentionProblem& problem, const KernelConfig& config);

/// infeasibility() of a backward problem and a config of the sm80 family.
std::vector<std::string> backward_sm80_infeasibility(const AttentionProblem& problem, const KernelConfig& config,
                                                     const DeviceSpec& device);

/// A config that fits, for any head dim.
KernelConfig backward_sm80_default(const AttentionProblem& problem, const DeviceSpec& device);

/// Launches, workspace and ordered outputs: delta, then dK and dV by tiles of keys, then dQ by tiles of queries. All
/// are ordered: no two CTAs add to the same element.
void describe_backward_sm80(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device,
                            const TemplateSet& templates, KernelTarget target, KernelPlan* plan);

}  // namespace attune
