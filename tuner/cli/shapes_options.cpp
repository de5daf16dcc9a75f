#include "tuner/cli/shapes_options.h"

#include <fmt/core.h>

#include "generator/error.h"

namespace attune::cli {

void ShapesOptions::add_to(CommandLine& verb, const std::string& shard_of) {
  verb.add_option("--shapes", file_,
                  "FILE.json (array of canonical texts, or of objects with the flags' names) or FILE.csv (header of "
                  "the flags' names; lines that begin with # are comments), in place of the problem flags. The field "
                  "name is what results call the problem");
  verb.add_option(
      "--shard", shard_,
      fmt::format("I/N: every N-th {} from the I-th on, for the jobs of an array; auto: as the environment of a "
                  "task says, of Slurm, MPI or torchrun, and auto/N in a job of Kubernetes",
                  shard_of));
}

std::vector<NamedProblem> ShapesOptions::named_problems(const ProblemOptions& one) const {
  if (!given()) return {{one.problem(), ""}};
  if (one.any_given()) {
    throw Error(ErrorCode::invalid_argument,
                "--shapes already names the problems: leave out the problem flags, or put them into the file");
  }
  return read_shapes(file_);
}

std::vector<AttentionProblem> ShapesOptions::problems(const ProblemOptions& one) const {
  std::vector<AttentionProblem> problems;
  for (const NamedProblem& named : named_problems(one)) problems.push_back(named.problem);
  return problems;
}

Shard ShapesOptions::shard() const { return shard_.empty() ? Shard() : parse_shard(shard_); }

}  // namespace attune::cli
