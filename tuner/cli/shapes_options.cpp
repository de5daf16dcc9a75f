#include "tuner/cli/shapes_options.h"

#include <fmt/core.h>

#include "generator/error.h"
#include "tuner/cli/output.h"

namespace attune::cli {

void ShapesOptions::add_to(CommandLine& verb, const std::string& parts) {
  verb.add_option("--shapes", file_,
                  "FILE.json (array of canonical texts, or of objects with the flags' names) or FILE.csv (header of "
                  "the flags' names; lines that begin with # are comments), in place of the problem flags. The field "
                  "name is what results call the problem");
  verb.add_option("--model", model_,
                  "config.json of a model of Transformers, in place of the problem flags: the problems of its "
                  "attention layers, in training, prefill and decoding");
  verb.add_option("--training", training_,
                  "with --model: 8x4096,1x32768: sequences and tokens of each, forward and backward (default, where "
                  "none of the three is given: 1x4096, or as many tokens as the model takes)");
  verb.add_option("--prefill", prefill_, "with --model: the same, forward alone (default: 1x4096)");
  verb.add_option("--decoding", decoding_,
                  "with --model: sequences of one query each, and their keys (default: 32x4096)");
  verb.add_option("--tensor-parallel", tensor_parallel_, "with --model: GPUs that share its heads (default 1)");
  if (parts.empty()) return;
  verb.add_option(
      "--shard", shard_,
      fmt::format("I/N: the I-th of N parts {}, for the jobs of an array; auto: as the environment of a task says, of "
                  "Slurm, MPI or torchrun, and auto/N in a job of Kubernetes",
                  parts));
}

ModelUse ShapesOptions::model_use() const {
  ModelUse use;
  use.tensor_parallel = tensor_parallel_.value_or(1);
  if (use.tensor_parallel < 1) refuse(fmt::format("--tensor-parallel is {}: must be at least 1", use.tensor_parallel));
  const auto read = [](const char* flag, const std::string& text) {
    try {
      return text.empty() ? std::vector<ModelCall>() : parse_model_calls(text);
    } catch (const Error& error) {
      refuse(fmt::format("{}: {}", flag, error.what()));
    }
  };
  use.training = read("--training", training_);
  use.prefill = read("--prefill", prefill_);
  use.decoding = read("--decoding", decoding_);
  return use;
}

std::vector<NamedProblem> ShapesOptions::named_problems(const ProblemOptions& one) const {
  const bool of_model = tensor_parallel_ || !training_.empty() || !prefill_.empty() || !decoding_.empty();
  if (of_model && model_.empty())
    refuse("--training, --prefill, --decoding and --tensor-parallel are of a model: name its --model config.json");
  if (!given()) return {{one.problem(), ""}};
  if (!file_.empty() && !model_.empty()) refuse("--shapes and --model both name the problems: leave out one of them");
  if (one.any_given()) {
    refuse(fmt::format("{} already names the problems: leave out the problem flags{}",
                       model_.empty() ? "--shapes" : "--model", model_.empty() ? ", or put them into the file" : ""));
  }
  if (model_.empty()) return read_shapes(file_);
  ModelProblems found = read_model_problems(model_, model_use());
  for (const std::string& left_out : found.left_out) warn(fmt::format("{}: {}", model_, left_out));
  return std::move(found.problems);
}

std::vector<AttentionProblem> ShapesOptions::problems(const ProblemOptions& one) const {
  std::vector<AttentionProblem> problems;
  for (const NamedProblem& named : named_problems(one)) problems.push_back(named.problem);
  return problems;
}

Shard ShapesOptions::shard() const { return shard_.empty() ? Shard() : parse_shard(shard_); }

}  // namespace attune::cli
