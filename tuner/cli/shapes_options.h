#pragma once

#include <string>
#include <vector>

#include "generator/problem/attention_problem.h"
#include "tuner/cli/command_line.h"
#include "tuner/cli/problem_options.h"
#include "tuner/sweep/shapes_file.h"
#include "tuner/sweep/shard.h"

namespace attune::cli {

/// --shapes and --shard: many problems in place of the one that the problem flags name.
class ShapesOptions {
 public:
  /// `shard_of`: what a shard is a part of, such as "kernel".
  void add_to(CommandLine& verb, const std::string& shard_of);

  bool given() const { return !file_.empty(); }
  const std::string& file() const { return file_; }
  /// The problems of the file, else the one of the flags, which has no name. Throws Error(io), Error(invalid_argument)
  /// that names the flag.
  std::vector<NamedProblem> named_problems(const ProblemOptions& one) const;
  /// The same without names.
  std::vector<AttentionProblem> problems(const ProblemOptions& one) const;
  /// 1 of 1 if none was asked for. Throws Error(invalid_argument).
  Shard shard() const;

 private:
  std::string file_, shard_;
};

}  // namespace attune::cli
