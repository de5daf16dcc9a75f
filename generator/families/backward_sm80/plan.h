#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "generator/config/kernel_config.h"
#include "generator/device/device_spec.h"
#include "generator/plan/kernel_plan.h"
#include "generator/problem/attention_problem.h"
#include "generator/text/template_set.h"

namespace attune {

/// What follows from a config and a head dim for the kernels of a backward plan of the sm80 family. Pure arithmetic.
/// Of a config they know block_q, block_kv, warps and split (of the kernel of key tiles: `split` warps own the same
/// split * block_kv / warps keys), stages, ctas_per_sm, tile_order, heads_apart, dq_first and dq. A kernel of its own
/// for dQ has a warp for each 16 of block_q. Assumes fields that pass the first checks of
/// backward_sm80_infeasibility().
struct BackwardSm80Shape {
  int dq_threads = 0, dkdv_threads = 0;
  std::size_t q_tile_bytes = 0, kv_tile_bytes = 0;
  std::size_t score_tile_bytes = 0;  ///< of P or dS of a block
  bool p_shared = false, ds_shared = false;
  int dq_rows = 0, dq_column_parts = 0;  ///< of a block's dQ in the kernel of key tiles: a warp's queries; parts of D
  std::size_t statistics_offset = 0, p_offset = 0, ds_offset = 0;  ///< of the kernel of key tiles
  std::size_t ticket_offset = 0;  ///< the same, where CTAs take numbers; a tile of dS may come to lie there later
  std::size_t dq_shared_bytes = 0, dkdv_shared_bytes = 0;
  int dq_registers = 0, dkdv_registers = 0;  ///< of a thread: accumulators, which cannot live elsewhere
};
BackwardSm80Shape backward_sm80_shape(const AttentionProblem& problem, const KernelConfig& config);

/// infeasibility() of a backward problem and a config of the sm80 family.
std::vector<std::string> backward_sm80_infeasibility(const AttentionProblem& problem, const KernelConfig& config,
                                                     const DeviceSpec& device);

/// Keys that a warp of the kernel of key tiles may own.
constexpr int kKeysOfBackwardWarp[] = {16, 32, 48};

/// KernelLaunch::section_heads() of the kernel of key tiles, were its order sections.
std::int32_t backward_section_heads(const AttentionProblem& problem, const KernelConfig& config,
                                    const DeviceSpec& device);

/// A config that fits, for any head dim. Heads of a group are apart where their common tiles would leave SMs without
/// work and the cost model finds that worth the sums; dQ has a kernel of its own where walks are too short for sums.
KernelConfig backward_sm80_default(const AttentionProblem& problem, const DeviceSpec& device);

/// Launches, workspace and ordered outputs: delta; dK and dV, or their sums where heads are apart, by tiles of keys; dQ
/// by tiles of queries, or its sums by the kernel before; the conversions of sums. All are ordered but sums that grow
/// as CTAs come.
void describe_backward_sm80(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device,
                            const TemplateSet& templates, KernelTarget target, KernelPlan* plan);

/// workspace_bytes_of() of any plan of the problem, at most.
std::size_t backward_sm80_most_workspace_bytes(const AttentionProblem& problem);

}  // namespace attune
