#pragma once

#include <string>
#include <vector>

#include "generator/config/kernel_config.h"
#include "generator/device/device_spec.h"
#include "generator/families/kernel_family.h"
#include "generator/problem/attention_problem.h"

namespace attune {

// Parts of the queries of a head (KernelConfig::query_parts). They serve two ends. Tensor cores truncate what they add
// to an accumulator, so that dK and dV of a key that very many queries see come out too small (as O of very many keys
// does: generator/families/long_rows.h); each part's are smaller, and the parts' are added in fp32, rounded to nearest.
// And parts are more tiles, where those of few keys leave SMs without work.

inline constexpr int kMostQueryParts = 4096;

/// Holds for the tiles of every family, so that one answer of may_split_queries() is for all of them.
inline constexpr int kMostKeysOfTile = 384;

/// A part of infeasibility(): parts that say what another word says, too.
void check_query_parts(const KernelConfig& config, std::vector<std::string>* reasons);

/// Whether a config of the problem that was picked or searched may have parts: where very many queries see a key, or
/// where tiles are few.
bool may_split_queries(const AttentionProblem& problem, const DeviceSpec& device);

/// The values of query_parts worth a search with the config's kv_grad_per_query_head. 1, but where a tile would walk
/// through more than 2^17 queries; as many as leave a part 2^16, where a head has more than 2^17; as many as fill the
/// device. Often one, and none where the other value of kv_grad_per_query_head must be taken.
std::vector<int> query_part_choices(const AttentionProblem& problem, const KernelConfig& config,
                                    const DeviceSpec& device);

/// Whether dQ of a query that sees very many keys would be summed in the accumulators of the tensor cores: where it has
/// a kernel of its own. Otherwise each tile's part of dQ is added in fp32.
bool sums_long_dq_in_registers(const AttentionProblem& problem, const KernelConfig& config);

/// The config with sums as exact as the problem's rows want them: walks of at most 2^17 queries, by parts or by
/// kv_grad_per_query_head, no parts where may_split_queries() says no, and dQ added by tiles of keys where
/// sums_long_dq_in_registers(). Other fields stay as they are, so that the result may not fit.
KernelConfig with_exact_sums(const AttentionProblem& problem, KernelConfig config, const DeviceSpec& device);

/// KernelFamily::adapt of backward: with_exact_sums(), and no heads apart where none share keys.
Adaptation adapt_backward(const Question& question, const KernelConfig& config);

}  // namespace attune
