#pragma once

#include <string>

#include "generator/problem/attention_problem.h"
#include "tuner/cli/command_line.h"

namespace attune::cli {

/// The flag --spread of verbs that time: how much wider the scores are than the problem's own.
struct SpreadOption {
  double factor = 1;  ///< on the softmax scale

  /// `when` begins the help: "with --now: ".
  void add_to(CommandLine& verb, const std::string& when = "");
  bool given() const { return factor != 1; }
  /// Throws Error(invalid_argument) for a factor that is not positive and finite.
  void require_sound() const;
  /// The problem with its scale times the factor. Throws Error(invalid_argument) where that is no scale.
  AttentionProblem apply(const AttentionProblem& problem) const;
  /// Prints the field "spread" if the factor is not 1.
  void print() const;
};

}  // namespace attune::cli
