#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "generator/device/device_spec.h"
#include "generator/families/kernel_family.h"
#include "generator/plan/kernel_plan.h"
#include "generator/text/template_set.h"

namespace attune {

// What families share of KernelConfig::visible_blocks: the kernel that finds the blocks, and what those that walk
// through them know of it.

/// A bit for each block: whether the attention mask shows any pair of it.
inline constexpr Buffer kVisibleBlocks{"visible_blocks", "i32*"};

/// What a tile's walk goes through: blocks of keys, of a tile of queries, or blocks of queries, of a tile of keys.
enum class BlockWalk { keys, queries };

/// A part of infeasibility(): without an attention mask there is nothing to find.
void check_visible_blocks(const AttentionProblem& problem, const KernelConfig& config,
                          std::vector<std::string>* reasons);

/// Another: what is present and walks through blocks in a way of its own.
void refuse_beside_visible_blocks(bool present, std::string_view what, std::vector<std::string>* reasons);

/// Adds the launch of kernels/visible_blocks and its buffer, where the config asks for them: before the launch that
/// walks.
void add_visible_blocks(const DeviceSpec& device, const TemplateSet& templates, KernelTarget target, BlockWalk walk,
                        KernelPlan* plan);
/// The largest buffer that a config of plan->problem may have.
void add_most_visible_blocks(BlockWalk walk, KernelPlan* plan);

/// The arguments and bindings of a kernel that walks.
void append_visible_blocks(Arguments* fields, const KernelConfig& config);
void bind_visible_blocks(const AttentionProblem& problem, const KernelConfig& config, BlockWalk walk,
                         TemplateBindings* bindings);

/// The config that passes over such blocks, where the problem has an attention mask and the config can.
KernelConfig with_visible_blocks(const AttentionProblem& problem, const DeviceSpec& device, const KernelConfig& config);
/// A step of KernelFamily::adapt, before adapt_pair_stages(): with_visible_blocks() of a config that was made for no
/// tensors of pairs; one that was keeps what was chosen for it.
void adapt_visible_blocks(const Question& question, Adaptation* adaptation);
/// The values of the field that a space offers.
std::vector<bool> visible_block_choices(const AttentionProblem& problem);

/// What share of its blocks a tile is expected to walk through. It is the mask's, which nobody knows before.
double expected_share_of_blocks(const KernelConfig& config);
/// What finding the blocks takes.
double visible_blocks_microseconds(const AttentionProblem& problem, const KernelConfig& config,
                                   const DeviceSpec& device);

}  // namespace attune
