#pragma once

#include "generator/families/kernel_family.h"

namespace attune {

/// Whether kernels find the rows of packed sequences, with the reason where they do not.
bool supports_packed_sequences(const AttentionProblem& problem, Reasons* reasons);

/// A config that was made for sequences of equal lengths, for packed ones, which may have any: CTAs that stay take the
/// tile that comes next, since every so many tiles could all be long ones.
void adapt_tile_scheduler(const AttentionProblem& problem, Adaptation* adaptation);

}  // namespace attune
