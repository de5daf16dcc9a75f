#pragma once

#include <optional>
#include <string>
#include <vector>

#include "generator/config/kernel_config.h"
#include "generator/families/kernel_family.h"
#include "generator/problem/attention_problem.h"

namespace attune {

// Problems whose results do not depend on their size (AttentionProblem::invariant). What decides the bits of a row is a
// function of the kernel class without its mask: the family, and the fields of a config that decides_bits() names. All
// else is tuned by size as always: tiles of queries, stages, orders, whether heads of a group lie in one tile.
//
// Forward: the maximum is that of all keys seen so far, whatever the row's neighbours in a warp, and keys are summed in
// parts of kKeysOfPart, from the first key on. Each part is summed as if it were alone, and then added to those before
// it in their order: by the CTA that goes through all of them (key_parts 1), or by one more kernel where parts are the
// work of CTAs of their own (kFixedParts). Backward: whatever decides bits is as the default of one size has it.

/// Keys of a part of a row. Fewer cost long problems more, and leave more of the GPU idle where queries are few
/// (docs/performance.md).
inline constexpr int kKeysOfPart = 2048;

/// The family that serves an invariant problem on a device, whatever its size: the newest that serves its class. Null
/// if none does.
const KernelFamily* invariant_family(const Question& question);

/// Whether the CTA that has a tile adds up the parts of its keys.
bool adds_parts_of_keys(const AttentionProblem& problem, const KernelConfig& config);

/// What a forward config of an invariant problem has for the fields that decide bits: keys of a step, which divide
/// kKeysOfPart, and what is rescaled, promoted and approximated.
KernelConfig with_invariant_sums(const AttentionProblem& problem, KernelConfig config);

/// The size for which a backward's default says what decides bits.
AttentionProblem size_of_invariant_backward(const AttentionProblem& problem);

/// A part of infeasibility(): a family, or a field that decides bits, that is not the kernel class's. Nothing of other
/// problems, but that parts of a fixed number of keys are not for them.
void check_invariance(const Question& question, const KernelConfig& config, Reasons* reasons);

}  // namespace attune
