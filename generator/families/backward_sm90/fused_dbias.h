#pragma once

#include <string>
#include <vector>

#include "generator/families/kernel_family.h"
#include "generator/plan/kernel_arguments.h"

namespace attune {

// KernelConfig::fused_dbias: dS of a pair is its bias's gradient where the bias repeats along nothing, and lies in
// shared memory anyway, in the gradient's type.

/// A part of infeasibility().
void check_fused_dbias(const AttentionProblem& problem, const KernelConfig& config, std::vector<std::string>* reasons);

/// What the kernel of key tiles takes for it: the gradient's pointer, strides and tensor map.
void append_fused_dbias(Arguments* fields, const KernelConfig& config);

/// The config with the word where that fits, and without it elsewhere.
KernelConfig with_fused_dbias(const AttentionProblem& problem, const KernelConfig& config);
/// A step of KernelFamily::adapt: with_fused_dbias().
void adapt_fused_dbias(const Question& question, Adaptation* adaptation);

}  // namespace attune
