#pragma once

#include <cstddef>

#include "generator/config/kernel_config.h"
#include "generator/device/device_spec.h"
#include "generator/plan/kernel_plan.h"
#include "generator/problem/attention_problem.h"

namespace attune {

/// What backward plans keep in the workspace beside the statistics and the sums.
inline constexpr Buffer kDqTickets{"dq_tickets", "u32*"};      ///< tiles of keys that have added to a block of queries
inline constexpr Buffer kDkdvTickets{"dkdv_tickets", "u32*"};  ///< how many have added to dK and dV of a tile of keys

inline constexpr Buffer kFinishedTiles{"finished_tiles", "u32*"};  ///< of keys, that have added all to a query head

/// The tiles of keys that packed sequences have, and how many.
inline constexpr Buffer kKeyTileList{"key_tile_list", "u32*"};
inline constexpr int kListedWords = 12;  ///< of 4 bytes, of a tile on it

/// Whether each query head has tiles of keys of its own, one or one for each part of its queries: dK and dV of the
/// tiles that hold the same keys are summed in fp32 in the workspace, and another kernel converts them.
bool adds_key_sums(const KernelConfig& config);

/// Whether tiles of keys take numbers in the order in which they begin to run, since some wait for others: in a fixed
/// order of adds, to dQ or to dK and dV.
bool takes_tickets(const KernelConfig& config);

/// Whether CTAs take the numbers of their tiles from a counter in the workspace.
bool counts_tiles(const KernelConfig& config);

/// Adds the workspace and the ordered outputs of a plan whose launches compute delta, then dK, dV and dQ, then convert
/// sums. All outputs are ordered but sums that grow as CTAs come.
void describe_backward_workspace(const AttentionProblem& problem, const KernelConfig& config, KernelPlan* plan);

/// workspace_bytes_of() of any such plan of the problem, at most, for blocks of at most so many queries and keys.
/// Counts sums of dK and dV where a picked or searched config may have them.
std::size_t most_backward_workspace_bytes(const AttentionProblem& problem, const DeviceSpec& device, int most_block_q,
                                          int most_block_kv);

}  // namespace attune
