#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "generator/plan/kernel_plan.h"
#include "generator/problem/attention_problem.h"
#include "generator/problem/problem_fields.h"
#include "generator/problem/sequence_lengths.h"
#include "runtime/oracle/term_values.h"
#include "tuner/cli/command_line.h"

namespace attune::cli {

/// The passes that a verb takes problems of: `run` and `input` know the tensors of forward only.
enum class Passes { forward, all };

/// Whether a verb must be told the sizes of its problem, by --seq and --head-dim or otherwise.
enum class Sizes { needed, optional };

/// The problem flags, the same in every verb: one for each of problem_fields(), or --problem TEXT.
class ProblemOptions {
 public:
  void add_to(CommandLine& verb, Passes passes = Passes::all, Sizes sizes = Sizes::needed);

  /// Flags of verbs that make a call's tensors: how many of its rows each sequence uses.
  void add_used_lengths_to(CommandLine& verb);

  bool any_given() const;
  std::uint64_t seed() const { return seed_; }

  /// The problem that the flags name; --seq and --head-dim are needed, others have defaults. Validated.
  /// Throws Error(invalid_argument) that names the flag.
  AttentionProblem problem() const;

  /// What the flags give of the numbers that a call's terms read: lengths and used lengths of a problem of theirs.
  /// Throws Error(invalid_argument) that names the flag.
  TermValues terms(const AttentionProblem& problem) const;

  /// Whether the flags name a mask, which may hide nothing of the problem: then problem() has a simpler one or none.
  bool names_mask() const;

  /// The layout in which tensors of a file are read.
  Layout layout() const;

  /// A problem whose dtype, sizes and layout come from tensors: mask and scale are taken from the flags, and every
  /// other flag that was given must agree with the tensors.
  AttentionProblem problem_of(const AttentionProblem& tensors) const;

 private:
  // A field of the problem that has a flag, and what stood behind it, in the form of the field.
  struct Flag {
    const ProblemField* field = nullptr;
    std::optional<std::int64_t> number;
    std::optional<double> real;
    std::string text;  // of a name or a mask
    bool is_set = false;

    /// Whether it names the rows of packed sequences one by one or by their distribution, and no value of the field.
    bool names_sequences() const { return field && field->key == "lengths" && names_lengths(text); }
    bool is_given() const { return number || real || (!text.empty() && !names_sequences()) || is_set; }
    /// The field's value; a mask has no such.
    std::int64_t value() const;
  };

  const Flag& flag(std::string_view key) const;
  void refuse_conflicts() const;
  void apply_what_is_of_call(const std::optional<NamedSequences>& sequences, AttentionProblem& problem) const;
  void apply_used_lengths(AttentionProblem& problem) const;
  /// The packed sequences that --lengths and --kv-lengths name.
  std::optional<NamedSequences> sequences() const;
  /// Throws unless the problem has as many of them, of as many rows together.
  void require_sequences(const NamedSequences& sequences, const AttentionProblem& problem) const;

  std::string text_, kv_lengths_, used_, used_kv_;
  std::vector<Flag> flags_;
  bool causal_ = false;
  Passes passes_ = Passes::all;
  std::uint64_t seed_ = 1;
};

/// The flag of a field, such as "--head-dim"; the field has one.
std::string with_dashes(const ProblemField& field);

/// Elements of a packed tensor (the LSE's for Operand::lse). Throws Error(invalid_argument) where they would not fit in
/// memory of 2^46 bytes, so that later products cannot overflow.
std::size_t element_count(const AttentionProblem& problem, Operand operand);

}  // namespace attune::cli
