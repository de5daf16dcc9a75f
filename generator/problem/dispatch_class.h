#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "generator/config/kernel_config.h"
#include "generator/problem/attention_problem.h"

namespace attune {

/// What the source of a problem's kernels depends on, beside their config. Batch, lengths, strides, scale and mask
/// offsets are arguments of the kernel, so that one cubin serves many shapes. The problem is one that validate()
/// accepts.
struct KernelClass {
  AttentionProblem fields;  ///< kernel_fields()
  std::int64_t group = 1;   ///< query heads that share K and V; only a config that packs them depends on it

  explicit KernelClass(const AttentionProblem& problem);
  friend bool operator==(const KernelClass&, const KernelClass&) = default;
};

/// The name of a problem's kernel class and a config, and so of their source: "forward bf16 d128 causal sm80 q128 kv64
/// w4 st2". A config that packs heads adds how many share K and V.
std::string kernel_class(const AttentionProblem& problem, const KernelConfig& config);

/// Whether both problems have the same source with the config: whether their kernel_class() is the same.
bool same_source(const AttentionProblem& a, const AttentionProblem& b, const KernelConfig& config);

/// A dispatch class knows whether lengths are multiples of this, and so of every power-of-two tile up to it.
inline constexpr std::int64_t kWholeLength = 256;

/// What a call, whose problem has its simplest_mask(), looks a plan up by: the kernel class, and everything else of the
/// problem but exact lengths, which are bucketed (powers of two and their halves), and the scale. Whether both lengths
/// are multiples of 256 is part of it, so that a config for whole tiles can be chosen; a causal mask counts as aligned
/// bottom right or top left, whichever is nearer; the sides of a window are bucketed as lengths are.
///
/// Problems of one dispatch class have the same source with any config: every map of plans or of configs whose kernels
/// lie ready has this as its key.
struct DispatchClass {
  KernelClass kernel;
  /// A valid problem of the kernel class, with the simplest mask. Its lengths are their bucket's upper end, or one
  /// less: both are multiples of 256, or neither is.
  AttentionProblem representative;

  friend bool operator==(const DispatchClass&, const DispatchClass&) = default;
};
DispatchClass dispatch_class(const AttentionProblem& problem);
std::string canonical_text(const DispatchClass& key);

/// Hash for unordered containers; equal classes have equal hashes.
struct DispatchClassHash {
  std::size_t operator()(const DispatchClass& key) const noexcept;
};

}  // namespace attune
