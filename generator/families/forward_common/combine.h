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

// What forward families share of split keys: their kernels write O, the maxima and the sums of each part of the keys to
// the workspace, in fp32, and one more kernel combines them.

/// (part, batch, head, query) of rows of O, normalised (of an invariant problem not), and of each row's maximum and
/// sum.
inline constexpr Buffer kPartialO{"o_partial", "float*"}, kPartialStatistics{"statistics_partial", "float*"};

/// Sums over rows that left the registers: O, and the maximum and the sum of each row, for the threads that own them.
inline constexpr Buffer kPromotedSums{"promoted_sums", "float*"};
/// Bytes of them for so many rows.
std::size_t promoted_sums_bytes(const AttentionProblem& problem, int rows);

/// How a config splits the keys of tiles of `tile_queries` queries of `tile_heads` heads where `slots` CTAs (or
/// clusters) run at once.
KeySplit key_split(const KernelConfig& config, const DeviceSpec& device, int slots, int tile_queries, int tile_heads);

/// A part of infeasibility(): rows of which the workspace does not hold a result for each part.
void check_key_parts(const AttentionProblem& problem, const KernelConfig& config, const DeviceSpec& device,
                     std::vector<std::string>* reasons);

/// Adds the launch of kernels/forward_combine (of an invariant problem, kernels/forward_add_parts) behind the plan's
/// first one, which splits its keys, and the buffers between them. Nothing where that one does not. headroom: the
/// powers of two by which sums are smaller than their maxima say. last_first: whether a CTA that goes through all keys
/// begins with the last ones.
void add_combine(const DeviceSpec& device, const TemplateSet& templates, KernelTarget target, int headroom,
                 bool last_first, KernelPlan* plan);

/// Adds the buffers for results of as many parts as any config may have. Depends on no length of keys up to 2^17.
void add_most_partial_results(const AttentionProblem& problem, const DeviceSpec& device, KernelPlan* plan);

/// What the cost models say of the split: the time in microseconds in which partial results are written, and that of
/// the second launch, which reads them. 0 where keys are not split.
double combine_microseconds(const AttentionProblem& problem, const KeySplit& split, const DeviceSpec& device);

/// Whether a search may win by splitting the keys of `tiles` tiles: they leave SMs idle, and each part of some has two
/// blocks of keys.
bool key_parts_may_win(const AttentionProblem& problem, const DeviceSpec& device, std::int64_t tiles, int block_kv);

}  // namespace attune
