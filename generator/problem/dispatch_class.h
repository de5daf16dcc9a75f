#pragma once

#include <cstdint>
#include <string>

#include "generator/config/kernel_config.h"
#include "generator/problem/attention_problem.h"

namespace attune {

/// What the source depends on: pass, dtype, D, mask kind, alignment, config. Batch, heads, lengths, strides, scale and
/// mask offset are arguments of the kernel, so that one cubin serves many shapes. Of heads, a config that packs them
/// adds how many share K and V.
std::string kernel_class(const AttentionProblem& problem, const KernelConfig& config);

/// A dispatch class knows whether lengths are multiples of this, and so of every power-of-two tile up to it.
inline constexpr std::int64_t kWholeLength = 256;

/// What a call looks up: everything of the problem but exact lengths, which are bucketed (powers of two and their
/// halves), and the scale. Whether both lengths are multiples of 256 is part of it, so that a config for whole tiles
/// can be chosen; a causal mask counts as aligned bottom right or top left, whichever is nearer.
struct DispatchClass {
  AttentionProblem
      representative;  ///< lengths are their bucket's upper end, or one less: both are multiples of 256, or neither is
  friend bool operator==(const DispatchClass&, const DispatchClass&) = default;
};
DispatchClass dispatch_class(const AttentionProblem& problem);
std::string canonical_text(const DispatchClass& key);

}  // namespace attune
