#include "generator/families/backward_common/workspace.h"

#include <cstdint>
#include <limits>

#include "generator/families/backward_common/convert.h"
#include "generator/families/backward_common/delta.h"
#include "generator/families/backward_common/query_parts.h"
#include "generator/families/shared/copied_pairs.h"
#include "generator/families/shared/visible_blocks.h"

namespace attune {
namespace {
constexpr int kLeastBlock = 16;                            // rows that share a ticket
constexpr int kAllRows = std::numeric_limits<int>::max();  // of a head, which have one number together

// For each head, of which the first one's is written.
WorkspaceBuffer key_tile_list(int rows) {
  return {kKeyTileList, kListedWords * sizeof(std::uint32_t), rows, false, TileRows::keys};
}
}  // namespace

bool adds_key_sums(const KernelConfig& config) { return config.kv_grad_per_query_head || config.query_parts > 1; }

bool takes_tickets(const KernelConfig& config) {
  return config.dq == DqAccumulation::ordered ||
         (adds_key_sums(config) && config.dq == DqAccumulation::separate_kernel);
}

bool counts_tiles(const KernelConfig& config) {
  return takes_tickets(config) || config.tile_scheduler == TileScheduler::dynamic_persistent;
}

void describe_backward_workspace(const AttentionProblem& problem, const KernelConfig& config, KernelPlan* plan) {
  const bool sums = adds_key_sums(config), unordered = config.dq == DqAccumulation::atomic;
  const auto rows = static_cast<std::size_t>(config.block_q);
  const std::size_t row_bytes = sizeof(float) * static_cast<std::size_t>(problem.head_dim);
  if (config.dq != DqAccumulation::separate_kernel)
    plan->buffers.push_back({kDqSums, rows * row_bytes, config.block_q, true});
  if (sums) {
    const std::size_t bytes = static_cast<std::size_t>(config.block_kv) * row_bytes;
    for (const Buffer& buffer : {kDkSums, kDvSums})
      plan->buffers.push_back({buffer, bytes, config.block_kv, true, TileRows::keys});
  }
  if (config.dq == DqAccumulation::ordered)
    plan->buffers.push_back({kDqTickets, sizeof(std::uint32_t), config.block_q * config.ticket_blocks, true});
  if (sums && !unordered)
    plan->buffers.push_back({kDkdvTickets, sizeof(std::uint32_t), config.block_kv, true, TileRows::keys});
  if (config.fused_convert) plan->buffers.push_back({kFinishedTiles, sizeof(std::uint32_t), kAllRows, true});
  if (counts_tiles(config)) {
    plan->workspace_bytes = kTileCounterOffset + sizeof(std::uint32_t);
    plan->workspace_zeroed = true;
  }
  if (!sums || !unordered) plan->ordered_outputs = {Operand::d_k, Operand::d_v};
  if (!unordered) plan->ordered_outputs.push_back(Operand::d_q);
  if (problem.sink) plan->ordered_outputs.push_back(Operand::d_sinks);
  plan->buffers.push_back({kStatistics, kStatisticsBytes * rows, config.block_q, false});
  if (problem.packed) plan->buffers.push_back(key_tile_list(config.block_kv));
}

std::size_t most_backward_workspace_bytes(const AttentionProblem& problem, const DeviceSpec& device, int most_block_q,
                                          int most_block_kv) {
  KernelPlan plan;
  const auto columns = static_cast<std::size_t>(problem.head_dim);
  AttentionProblem padded = problem;
  // Rounded up to any block, each packed sequence by itself.
  const std::int64_t sequences = problem.packed ? problem.batch : 1;
  padded.seq_q += sequences * (most_block_q - 1);
  padded.seq_kv += sequences * (most_block_kv - 1);
  plan.workspace_bytes = kTileCounterOffset + sizeof(std::uint32_t);
  plan.buffers = {{kDqSums, sizeof(float) * columns, 1, true},
                  {kDqTickets, sizeof(std::uint32_t), kLeastBlock, true},
                  {kFinishedTiles, sizeof(std::uint32_t), kAllRows, true},
                  {kStatistics, kStatisticsBytes, 1, false}};
  if (problem.heads_q != problem.heads_kv || may_split_queries(problem, device)) {
    for (const Buffer& sums : {kDkSums, kDvSums})
      plan.buffers.push_back({sums, sizeof(float) * columns, 1, true, TileRows::keys});
    plan.buffers.push_back({kDkdvTickets, sizeof(std::uint32_t), kLeastBlock, true, TileRows::keys});
  }
  if (problem.packed) plan.buffers.push_back(key_tile_list(kLeastBlock));
  plan.problem = problem;
  add_most_visible_blocks(BlockWalk::queries, &plan);
  add_most_copied_pairs(&plan);
  return plan.workspace_bytes_of(padded);
}

}  // namespace attune
