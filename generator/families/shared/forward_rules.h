#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "generator/config/kernel_config.h"
#include "generator/device/device_spec.h"
#include "generator/families/kernel_family.h"
#include "generator/problem/attention_problem.h"
#include "generator/problem/element_type.h"

namespace attune {

// What forward families share: parts of infeasibility(), of which each adds a sentence for what does not fit, and rules
// by which they choose.

/// The keys of a step, and an order that is none of tiles of queries.
void check_forward_tile(const KernelConfig& config, std::vector<std::string>* reasons);
/// Parts of L2 where no section fills them.
void check_sections(const KernelConfig& config, std::vector<std::string>* reasons);
/// Lengths that are no multiples of the tiles.
void check_even_tiles(const AttentionProblem& problem, const KernelConfig& config, std::vector<std::string>* reasons);
/// Heads of a group in a tile that none or only a part of it fits. Comes before shapes of tiles, which divide by what
/// it checks.
void check_pack_gqa(const AttentionProblem& problem, const KernelConfig& config, std::vector<std::string>* reasons);
/// Bytes of Q, of P, of all stages of K and V, and of all of them together.
void check_shared_memory(std::size_t q_bytes, std::size_t p_bytes, std::size_t kv_bytes, std::size_t shared_bytes,
                         const KernelConfig& config, const DeviceSpec& device, std::vector<std::string>* reasons);
/// Whether an SM takes as many CTAs of so many threads as the config wants.
bool threads_fit(int threads, const KernelConfig& config, const DeviceSpec& device, std::vector<std::string>* reasons);

/// KernelFamily::adapt of forward: sums promoted and O rescaled as this problem wants it, the sums of an invariant one,
/// and bounds checked where lengths are no multiples of the tiles.
Adaptation adapt_forward(const Question& question, const KernelConfig& config);

/// Query heads that a tile of the config holds, as its rows in turn.
int heads_of_tile(const AttentionProblem& problem, const KernelConfig& config);

/// Whether tiles of block_q rows that hold all query heads of a group are worth trying: tiles of one head would be
/// mostly empty, or mostly on the diagonal.
bool pack_gqa_may_win(const AttentionProblem& problem, int block_q);

/// Whether a plan for whole tiles would serve all members of the problem's dispatch class: {false} or {false, true}.
std::vector<bool> whole_tile_choices(const AttentionProblem& problem, int block_q, int block_kv);

/// Tiles of block_q rows, of all heads and batch entries, where rows of `group` query heads lie in a tile.
std::int64_t query_tile_count(const AttentionProblem& problem, int block_q, std::int64_t group);

/// Powers of two by which the row maximum may grow before O is rescaled, in default configs and in what the space
/// offers beside rescaling at every block: what is faster on scores that spread widely costs exactness where one key
/// outweighs the others by more than 8 powers, and fp16 has little to give (docs/notebook/forward_sm90.md).
inline int rescale_threshold_for(DataType dtype) { return facts_of(dtype).rescale_threshold; }

/// The config with its dtype's threshold in place of another one: an earlier version, or the other dtype, may have it,
/// and where one wins so does the other.
inline KernelConfig with_threshold_for(DataType dtype, KernelConfig config) {
  if (config.rescale_threshold > 0) config.rescale_threshold = rescale_threshold_for(dtype);
  return config;
}

}  // namespace attune
