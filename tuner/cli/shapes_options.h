#pragma once

#include <optional>
#include <string>
#include <vector>

#include "generator/problem/attention_problem.h"
#include "tuner/cli/command_line.h"
#include "tuner/cli/problem_options.h"
#include "tuner/sweep/model_problems.h"
#include "tuner/sweep/shapes_file.h"
#include "tuner/sweep/shard.h"

namespace attune::cli {

/// --shapes, --model and --shard: many problems in place of the one that the problem flags name.
class ShapesOptions {
 public:
  /// `parts`: which ones a shard is one of, such as "of equally many kernels"; empty: there are none, and no --shard.
  void add_to(CommandLine& verb, const std::string& parts);

  bool given() const { return !file_.empty() || !model_.empty(); }
  /// The list, or the model's configuration.
  const std::string& file() const { return file_.empty() ? model_ : file_; }
  /// The problems of the file or of the model, else the one of the flags, which has no name. What of a model is left
  /// out is said on stderr. Throws Error(io), Error(invalid_argument) that names the flag.
  std::vector<NamedProblem> named_problems(const ProblemOptions& one) const;
  /// The same without names.
  std::vector<AttentionProblem> problems(const ProblemOptions& one) const;
  /// 1 of 1 if none was asked for. Throws Error(invalid_argument).
  Shard shard() const;

 private:
  ModelUse model_use() const;

  std::string file_, model_, training_, prefill_, decoding_, shard_;
  std::optional<int> tensor_parallel_;
};

}  // namespace attune::cli
