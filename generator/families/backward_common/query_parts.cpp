#include "generator/families/backward_common/query_parts.h"

#include <algorithm>
#include <cstdint>

#include "generator/families/long_rows.h"
#include "generator/problem/mask_geometry.h"
#include "generator/rounding.h"

namespace attune {
namespace {

// Of a part, where parts fill the device: beside fewer a tile's beginning and end, and its adds, weigh too much.
constexpr int kLeastQueriesOfPart = 512;
// Keys of the largest tile of any family.
constexpr int kMostKeysOfTile = 384;

// Query heads that one tile of keys walks through.
std::int64_t heads_walked(const AttentionProblem& problem, bool kv_grad_per_query_head) {
  return kv_grad_per_query_head ? 1 : problem.heads_q / problem.heads_kv;
}

std::int64_t needed_parts(const AttentionProblem& problem, bool kv_grad_per_query_head) {
  const std::int64_t walk = heads_walked(problem, kv_grad_per_query_head) * MaskGeometry(problem).most_queries();
  if (walk <= kMostRowsInAccumulators) return 1;
  return std::min<std::int64_t>(ceil_div(walk, kRowsOfPromotion), kMostQueryParts);
}

std::int64_t key_tiles(const AttentionProblem& problem, std::int64_t heads, int block_kv) {
  return problem.batch * heads * ceil_div(problem.seq_kv, block_kv);
}

}  // namespace

bool may_split_queries(const AttentionProblem& problem, const DeviceSpec& device) {
  return needed_parts(problem, false) > 1 ||
         2 * key_tiles(problem, problem.heads_kv, kMostKeysOfTile) <= device.sm_count;
}

std::vector<int> query_part_choices(const AttentionProblem& problem, const KernelConfig& config,
                                    const DeviceSpec& device) {
  const std::int64_t needed = needed_parts(problem, config.kv_grad_per_query_head);
  const std::int64_t tiles =
      key_tiles(problem, config.kv_grad_per_query_head ? problem.heads_q : problem.heads_kv, config.block_kv);
  const std::int64_t most = MaskGeometry(problem).most_queries() / kLeastQueriesOfPart;
  const std::int64_t filling = std::min<std::int64_t>({device.sm_count / tiles, most, kMostQueryParts});
  if (filling <= needed) return {static_cast<int>(needed)};
  return {static_cast<int>(needed), static_cast<int>(filling)};
}

bool sums_long_dq_in_registers(const AttentionProblem& problem, const KernelConfig& config) {
  return config.dq == DqAccumulation::separate_kernel && most_keys_of_row(problem) > kMostRowsInAccumulators;
}

KernelConfig with_exact_sums(const AttentionProblem& problem, KernelConfig config, const DeviceSpec& device) {
  if (!may_split_queries(problem, device)) config.query_parts = 1;
  config.query_parts =
      std::max(config.query_parts, static_cast<int>(needed_parts(problem, config.kv_grad_per_query_head)));
  if (sums_long_dq_in_registers(problem, config))
    config.dq = problem.deterministic ? DqAccumulation::ordered : DqAccumulation::atomic;
  return config;
}

}  // namespace attune
