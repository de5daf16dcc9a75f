#include "generator/families/shared/visible_blocks.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "generator/generate.h"
#include "generator/problem/operand_shape.h"
#include "generator/text/attention_bindings.h"
#include "generator/text/launch_rendering.h"

namespace attune {
namespace {

constexpr int kBlocksOfWord = 32, kLanes = 32;
constexpr int kThreadsOfWord = kBlocksOfWord * kLanes;  // a warp for each block
constexpr int kCtasPerSm = 2;                           // of so many threads
constexpr int kSmallestBlock = 32;

WorkspaceBuffer buffer_of_blocks(BlockWalk walk, int block_q, int block_kv) {
  const bool keys = walk == BlockWalk::keys;
  return {.buffer = kVisibleBlocks,
          .bytes = sizeof(std::uint32_t),
          .rows = keys ? block_q : kBlocksOfWord * block_q,
          .keys = keys ? kBlocksOfWord * block_kv : block_kv};
}

ArgumentLayout arguments_of_search(const AttentionProblem& problem) {
  Arguments fields = {Workspace{kVisibleBlocks}};
  append_pointers(&fields, {Operand::attention_mask});
  append_strides(&fields, {Operand::attention_mask});
  append(&fields, {pair_queries_of(problem), pair_keys_of(problem), Scalar::attention_mask_batch,
                   Scalar::attention_mask_heads, Scalar::attention_mask_rows});
  return ArgumentLayout::of(std::move(fields));
}

}  // namespace

void check_visible_blocks(const AttentionProblem& problem, const KernelConfig& config,
                          std::vector<std::string>* reasons) {
  if (config.visible_blocks && problem.attention_mask == PairTensor::none)
    reasons->push_back("visible-blocks: the problem has no attention mask; leave the word out");
}

void refuse_beside_visible_blocks(bool present, std::string_view what, std::vector<std::string>* reasons) {
  if (present) reasons->push_back(fmt::format("visible-blocks: does not go with {}", what));
}

void add_visible_blocks(const DeviceSpec& device, const TemplateSet& templates, KernelTarget target, BlockWalk walk,
                        KernelPlan* plan) {
  const KernelConfig& config = plan->config;
  if (!config.visible_blocks) return;
  KernelLaunch launch;
  launch.entry = "attune_visible_blocks";
  launch.threads = kThreadsOfWord;
  launch.shared_bytes = kBlocksOfWord * sizeof(std::uint32_t);
  launch.rows_per_tile = config.block_q;
  launch.max_ctas = kCtasPerSm * device.sm_count;
  launch.arguments = arguments_of_search(plan->problem);
  const bool keys = walk == BlockWalk::keys;
  TemplateBindings bindings;
  bindings.set("block_q", config.block_q);
  bindings.set("block_kv", config.block_kv);
  bindings.set("threads", launch.threads);
  bindings.set("shared_bytes", static_cast<std::int64_t>(launch.shared_bytes));
  bindings.set("outer", keys ? "tile of queries" : "tile of keys");
  bindings.set("inner", keys ? "block of keys" : "block of queries");
  const std::string rows = to_string(pair_queries_of(plan->problem)), columns = to_string(pair_keys_of(plan->problem));
  bindings.set("pair_queries", rows);
  bindings.set("pair_keys", columns);
  const std::string queries = "args." + rows + ", kBlockQ", all_keys = "args." + columns + ", kBlockKv";
  bindings.set("outer_rows", keys ? queries : all_keys);
  bindings.set("inner_rows", keys ? all_keys : queries);
  bindings.set("query_block", keys ? "of_head" : "inner");
  bindings.set("key_block", keys ? "inner" : "of_head");
  render_launch("visible_blocks", plan->kernel_class, device, templates, target, std::move(bindings), &launch);
  plan->launches.push_back(std::move(launch));
  plan->buffers.push_back(buffer_of_blocks(walk, config.block_q, config.block_kv));
}

void add_most_visible_blocks(BlockWalk walk, KernelPlan* plan) {
  if (plan->problem.attention_mask != PairTensor::none)
    plan->buffers.push_back(buffer_of_blocks(walk, kSmallestBlock, kSmallestBlock));
}

void append_visible_blocks(Arguments* fields, const KernelConfig& config) {
  if (!config.visible_blocks) return;
  append(fields, {Workspace{kVisibleBlocks}, Scalar::attention_mask_batch, Scalar::attention_mask_heads});
}

void bind_visible_blocks(const AttentionProblem& problem, const KernelConfig& config, BlockWalk walk,
                         TemplateBindings* bindings) {
  const bool keys = walk == BlockWalk::keys, longest = problem.has_longest_sequence();
  bindings->conditions["visible_blocks"] = config.visible_blocks;
  bindings->conditions["walks_down"] = keys;
  bindings->set("tiles", keys ? "tiles of queries" : "tiles of keys");
  std::string tiles = keys ? "args.query_tiles" : "args.key_tiles", tile = "tile";
  if (longest) {
    tiles = keys ? "((args.max_seq_q + kBlockQ - 1) / kBlockQ)" : "((args.max_seq_kv + kBlockKv - 1) / kBlockKv)";
    tile = fmt::format("(tile < {0} ? tile : {0} - 1)", tiles);  // behind the last one no rows count
  }
  bindings->set("tiles_of_head", tiles);
  bindings->set("tile_of_mask", tile);
  bindings->set("walked_rows",
                "args." + (keys ? to_string(pair_keys_of(problem)) : to_string(pair_queries_of(problem))));
  bindings->set("walked_block", keys ? "kBlockKv" : "kBlockQ");
}

KernelConfig with_visible_blocks(const AttentionProblem& problem, const DeviceSpec& device,
                                 const KernelConfig& config) {
  KernelConfig visible = config;
  visible.visible_blocks = problem.attention_mask != PairTensor::none;
  if (!visible.visible_blocks || infeasibility(problem, visible, device).empty()) return visible;
  visible.visible_blocks = false;
  return visible;
}

void adapt_visible_blocks(const Question& question, Adaptation* adaptation) {
  KernelConfig& config = adaptation->config;
  const bool had = config.visible_blocks;
  if (question.problem.attention_mask != PairTensor::none && (had || config.pair_stages > 0)) return;
  config = with_visible_blocks(question.problem, question.device, config);
  if (config.visible_blocks == had) return;
  adaptation->changes.push_back(had ? "without visible-blocks, which only an attention mask has"
                                    : "with visible-blocks, for an attention mask");
}

std::vector<bool> visible_block_choices(const AttentionProblem& problem) {
  if (problem.attention_mask == PairTensor::none) return {false};
  return {false, true};
}

double expected_share_of_blocks(const KernelConfig& config) { return config.visible_blocks ? 0.5 : 1; }

double visible_blocks_microseconds(const AttentionProblem& problem, const KernelConfig& config,
                                   const DeviceSpec& device) {
  if (!config.visible_blocks) return 0;
  constexpr double kLaunchMicroseconds = 3, kMemoryRate = 0.7;  // not measured yet
  return kLaunchMicroseconds + static_cast<double>(operand_shape(problem, Operand::attention_mask).bytes()) /
                                   (kMemoryRate * device.memory_gbps * 1e3);
}

}  // namespace attune
