#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "generator/problem/attention_problem.h"

namespace attune {

/// How the value of a field of a problem stands in its text.
enum class ProblemFieldForm {
  number,  ///< the word and digits: "hq16"
  real,    ///< the word and a number: "scale0.1"
  name,    ///< one of its names alone: "bf16"; of a field with a word behind it: "bias=bhqk"
  flag,    ///< the word alone, for true: "deterministic"
  mask,    ///< words of its own, which name the offsets, too: "causal@5"
};

/// What depends on a field.
enum class FieldRole {
  kernel,  ///< the source: it is part of the kernel class
  size,    ///< what is picked, as a size: an argument of the kernel, of which the dispatch class knows a bucket or all
  pick,    ///< what is picked, whatever the size: no kernel reads it
  term,    ///< the source, by whether it has another value than the standard one; the value is an argument
  argument,  ///< nothing but the result: an argument of the kernel
  label,     ///< nothing that a kernel knows: how packed tensors lie
};

/// Everything that is to say of one field of AttentionProblem. Text, parsing, hash, kernel class, the database's
/// columns and its distance between problems, the flags of the command, the fields of lists of shapes and `attune show
/// fields` are derived from it.
struct ProblemField {
  std::string_view word;    ///< of its form; empty of names that stand alone, and of masks
  std::string_view key;     ///< the member's name, that of the column in the database and of the field in JSON
  std::string_view flag;    ///< of the command, without its dashes, and of lists of shapes; empty: it has none
  std::string_view called;  ///< in a sentence: "query heads"
  ProblemFieldForm form;
  FieldRole role;
  /// The value: of a real the bits of its float, of a name or a mask its number, of a flag 0 or 1.
  std::int64_t (*get)(const AttentionProblem&);
  void (*set)(AttentionProblem&, std::int64_t);
  /// The value that goes without a word. It may depend on fields before this one.
  std::int64_t (*standard)(const AttentionProblem&);
  std::string_view help;                      ///< what it is, in a few words, with its default
  std::span<const std::string_view> names{};  ///< of a name, or a mask's kinds, by number
  bool always = false;                        ///< written even at its standard value
  bool needed = false;                        ///< who names a problem by flags must name it
  bool backward_only = false;                 ///< forward problems have its standard value
  /// For a field without a column, which stands among the features in the database: how far apart problems are that
  /// differ in it, in the unit of TuningDatabase::near().
  std::optional<double> feature_weight{};
  /// For a term whose values have several kernels: the value that stands for those with the same one, and its words in
  /// the name of the kernel class. Null: all that have another value than the standard one have the same.
  std::int64_t (*of_class)(std::int64_t value) = nullptr;
  std::string (*class_words)(const AttentionProblem&) = nullptr;

  bool is_standard(const AttentionProblem& problem) const { return get(problem) == standard(problem); }
  /// The words as a problem's text has them: "hq16", "scale0.1", "bf16", "deterministic", "causal@5". Empty of a mask
  /// that hides nothing.
  std::string text(const AttentionProblem& problem) const;
  /// The word of a name, which is the same whichever problem has it.
  std::string word_of(std::string_view name) const;
};

std::string_view to_string(ProblemFieldForm form);  ///< "number"
std::string_view to_string(FieldRole role);         ///< "kernel"

/// All fields, in the order of canonical_text().
std::span<const ProblemField> problem_fields();

/// The field with this key. Throws Error(internal) if there is none.
const ProblemField& problem_field(std::string_view key);

/// The words of the fields that have no column in the database, in their order: "deterministic", often nothing.
std::string feature_words(const AttentionProblem& problem);

/// How far apart problems are by their features, of which feature_words() are one's: the sum of the weights of those
/// that differ. Throws Error(invalid_argument) for words of no feature.
double feature_distance(const AttentionProblem& problem, std::string_view words_of_other);

/// A problem with the fields of this one that have the role `kernel`, of those that have the role `term` whether they
/// have another value than the standard one, a mask without offsets, and nothing else of it: equal of two problems
/// exactly if their source is the same with any config that does not pack heads.
AttentionProblem kernel_fields(const AttentionProblem& problem);

/// Gives each field of the role `argument` its standard value, and all of the role `term` that have another one the
/// same.
void reset_arguments(AttentionProblem* problem);

/// What a kernel class is called: the words of its fields, a mask's without offsets: "forward bf16 d128 causal".
std::string kernel_class_words(const AttentionProblem& problem);

/// The real value of a field of that form, from its number.
float real_value(std::int64_t bits);
std::int64_t real_bits(float value);

}  // namespace attune
