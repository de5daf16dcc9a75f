#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "generator/plan/kernel_plan.h"
#include "generator/problem/attention_problem.h"
#include "tuner/cli/command_line.h"

namespace attune::cli {

/// The passes that a verb takes problems of: `run` and `input` know the tensors of forward only.
enum class Passes { forward, all };

/// Whether a verb must be told the sizes of its problem, by --seq and --head-dim or otherwise.
enum class Sizes { needed, optional };

/// The problem flags, the same in every verb: one flag per field, or --problem TEXT.
class ProblemOptions {
 public:
  void add_to(CommandLine& verb, Passes passes = Passes::all, Sizes sizes = Sizes::needed);

  bool any_given() const;
  std::uint64_t seed() const { return seed_; }

  /// The problem that the flags name; --seq and --head-dim are needed, others have defaults. Validated.
  /// Throws Error(invalid_argument) that names the flag.
  AttentionProblem problem() const;

  /// Whether the flags name a mask, which may hide nothing of the problem: then problem() has a simpler one or none.
  bool names_mask() const;

  /// The layout in which tensors of a file are read.
  Layout layout() const;

  /// A problem whose dtype, sizes and layout come from tensors: mask and scale are taken from the flags, and every
  /// other flag that was given must agree with the tensors.
  AttentionProblem problem_of(const AttentionProblem& tensors) const;

 private:
  void refuse_conflicts() const;
  void apply_mask_and_scale(AttentionProblem& problem) const;

  std::string text_, pass_, dtype_, mask_, layout_;
  std::optional<std::int64_t> batch_, heads_, kv_heads_, seq_, kv_seq_;
  std::optional<int> head_dim_;
  std::optional<double> scale_;
  bool causal_ = false, deterministic_ = false;
  Passes passes_ = Passes::all;
  std::uint64_t seed_ = 1;
};

/// Elements of a packed tensor (the LSE's for Operand::lse). Throws Error(invalid_argument) where they would not fit in
/// memory of 2^46 bytes, so that later products cannot overflow.
std::size_t element_count(const AttentionProblem& problem, Operand operand);

}  // namespace attune::cli
