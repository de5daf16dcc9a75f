#pragma once

#include <cstdint>

#include "generator/config/kernel_config.h"
#include "generator/problem/attention_problem.h"

namespace attune {

// Rows with very many keys. Tensor cores truncate what they add to an accumulator, so a long sum comes out too small:
// by 1.3e-3 of O at 2^20 keys in fp16 (H200, V uniform; docs/notebook/split_keys.md). Kernels that promote their sums
// add what so many keys gave in fp32, rounded to nearest.

inline constexpr int kMostPromotionBlocks = 8192;

/// Rows whose products a tensor core may add to one accumulator, and so many where there would be more. What is lost
/// grows with them: at 2^17 keys it is a third of what rounding O to fp16 costs.
inline constexpr std::int64_t kMostRowsInAccumulators = std::int64_t{1} << 17, kRowsOfPromotion = std::int64_t{1} << 16;

/// Keys that a row sees, at most, and queries that see a key. Of packed sequences, whose lengths a problem does not
/// know, those of one that is five times as long as the mean, or has a quarter of all rows: should one have them all,
/// four times as much is lost as otherwise, which is a third more than rounding costs.
std::int64_t most_keys_of_row(const AttentionProblem& problem);
std::int64_t most_queries_of_key(const AttentionProblem& problem);

/// Whether any row of the problem has so many keys that its sums want promotion where one CTA has them all, and no
/// short parts.
bool has_long_rows(const AttentionProblem& problem);

/// The config with sums promoted as often as the problem's rows want it: never up to 2^17 keys that a part of a row
/// sees, and from there on at least after every 2^16. Other fields stay as they are, so that the result may not fit.
KernelConfig promoted_for(const AttentionProblem& problem, KernelConfig config);

}  // namespace attune
