#pragma once

#include "generator/families/kernel_family.h"

namespace attune {

/// Whether kernels find the rows of packed sequences, with the reason where they do not.
bool supports_packed_sequences(const AttentionProblem& problem, Reasons* reasons);

}  // namespace attune
