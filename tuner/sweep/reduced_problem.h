#pragma once

#include "generator/config/kernel_config.h"
#include "generator/problem/attention_problem.h"

namespace attune {

/// A problem of the same kernel class that the emulator runs in about a second: a few tiles of `config`, with the same
/// tails. The problem itself if it is small enough.
AttentionProblem reduced_problem(const AttentionProblem& problem, const KernelConfig& config);

}  // namespace attune
