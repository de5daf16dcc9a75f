#include "generator/families/backward_common/query_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "generator/families/backward_common/workspace.h"
#include "generator/families/long_rows.h"
#include "generator/families/shared/wgmma.h"
#include "generator/problem/mask_geometry.h"
#include "generator/rounding.h"

namespace attune {
namespace {

// Queries that a tile of the config walks through, at most.
std::int64_t longest_walk(const AttentionProblem& problem, const KernelConfig& config) {
  const std::int64_t heads = adds_key_sums(config) ? 1 : problem.heads_q / problem.heads_kv;
  return heads * ceil_div(most_queries_of_key(problem), config.query_parts);
}

bool has_long_heads(const AttentionProblem& problem) { return most_queries_of_key(problem) > kMostRowsInAccumulators; }
int parts_of_long_head(const AttentionProblem& problem) {
  return static_cast<int>(
      std::min<std::int64_t>(ceil_div(most_queries_of_key(problem), kRowsOfPromotion), kMostQueryParts));
}

// Less than 2: the device is full without. Of parts with fewer queries a tile's beginning and end, and its adds, weigh
// too much. Under a causal mask the last tiles of a head end early, and leave room for half as many parts again: with
// 58 and 64 tiles on an H200 three were 9 to 20 % faster than two. Groups fill the device by tiles of each query head,
// too.
int filling_parts(const AttentionProblem& problem, int block_kv, const DeviceSpec& device) {
  constexpr int kLeastQueriesOfPart = 320, kLeastOfGroup = 512;
  const bool grouped = problem.heads_q > problem.heads_kv;
  const int least_queries = grouped ? kLeastOfGroup : kLeastQueriesOfPart;
  const std::int64_t tiles = problem.batch * problem.heads_q * ceil_div(problem.seq_kv, block_kv);
  const std::int64_t slots = lengthens_tiles(problem.mask) && !grouped ? device.sm_count * 3 / 2 : device.sm_count;
  return static_cast<int>(std::min<std::int64_t>(slots / tiles, most_queries_of_key(problem) / least_queries));
}

}  // namespace

void check_query_parts(const KernelConfig& config, std::vector<std::string>* reasons) {
  if (config.query_parts == 1 || !config.kv_grad_per_query_head) return;
  reasons->push_back(
      fmt::format("query-parts{} kv-grad-per-query-head: parts are of one query head each; leave "
                  "kv-grad-per-query-head out",
                  config.query_parts));
}

bool may_split_queries(const AttentionProblem& problem, const DeviceSpec& device) {
  return has_long_heads(problem) || filling_parts(problem, kMostKeysOfTile, device) > 1;
}

std::vector<int> query_part_choices(const AttentionProblem& problem, const KernelConfig& config,
                                    const DeviceSpec& device) {
  if (problem.invariant) return {1};  // whatever its size
  KernelConfig whole = config;
  whole.query_parts = 1;
  std::vector<int> choices;
  if (longest_walk(problem, whole) <= kMostRowsInAccumulators) choices.push_back(1);
  if (config.kv_grad_per_query_head) return choices;
  if (has_long_heads(problem)) choices.push_back(parts_of_long_head(problem));
  const int filling = filling_parts(problem, config.block_kv, device);
  if (filling > 1 && (choices.empty() || filling > choices.back())) choices.push_back(filling);
  return choices;
}

bool sums_long_dq_in_registers(const AttentionProblem& problem, const KernelConfig& config) {
  return config.dq == DqAccumulation::separate_kernel && most_keys_of_row(problem) > kMostRowsInAccumulators;
}

KernelConfig with_exact_sums(const AttentionProblem& problem, KernelConfig config, const DeviceSpec& device) {
  if (!may_split_queries(problem, device)) config.query_parts = 1;
  if (longest_walk(problem, config) > kMostRowsInAccumulators) {
    config.kv_grad_per_query_head = !has_long_heads(problem);
    if (has_long_heads(problem)) config.query_parts = parts_of_long_head(problem);
  }
  if (sums_long_dq_in_registers(problem, config))
    config.dq = problem.has_fixed_order() ? DqAccumulation::ordered : DqAccumulation::atomic;
  return config;
}

Adaptation adapt_backward(const Question& question, const KernelConfig& given) {
  const auto& [problem, device] = question;
  Adaptation adaptation{with_exact_sums(problem, given, device), {}};
  KernelConfig& config = adaptation.config;
  if (problem.heads_q == problem.heads_kv) config.kv_grad_per_query_head = false;
  const auto changed = [&](std::string what) { adaptation.changes.push_back(std::move(what)); };
  if (config.query_parts != given.query_parts)
    changed(fmt::format("with {} in place of {} parts of the queries", config.query_parts, given.query_parts));
  if (config.dq != given.dq) changed("with dQ added by tiles of keys, which long rows need");
  if (config.kv_grad_per_query_head && !given.kv_grad_per_query_head)
    changed("with kv-grad-per-query-head, which long rows need");
  if (leave_clusters(problem, &config)) changed(kWithoutClusters);
  if (!config.kv_grad_per_query_head && given.kv_grad_per_query_head && config.query_parts == 1)
    changed("without kv-grad-per-query-head, which needs grouped heads");
  return adaptation;
}

}  // namespace attune
