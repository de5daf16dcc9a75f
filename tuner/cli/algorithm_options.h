#pragma once

#include <string>
#include <vector>

#include "generator/ladder/attention_algorithm.h"
#include "tuner/cli/command_line.h"
#include "tuner/cli/config_options.h"

namespace attune::cli {

/// --algorithm: a step of the ladder instead of a config.
class AlgorithmOptions {
 public:
  void add_to(CommandLine& verb);
  void add_several_to(CommandLine& verb);  ///< X,Y or all, too

  bool given() const { return !text_.empty(); }
  /// In their order. Throws Error(invalid_argument) for an unknown or repeated one, beside --config, and for a problem
  /// that is not forward.
  std::vector<AttentionAlgorithm> algorithms(const AttentionProblem& problem, const ConfigOptions& config) const;

 private:
  void add(CommandLine& verb, const char* help);

  std::string text_;
};

}  // namespace attune::cli
