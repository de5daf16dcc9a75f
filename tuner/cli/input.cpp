#include <fmt/core.h>

#include "tuner/cli/exit_status.h"
#include "tuner/cli/output.h"
#include "tuner/cli/problem_options.h"
#include "tuner/cli/qkv_file.h"
#include "tuner/cli/verb.h"

namespace attune::cli {
namespace {

struct InputOptions {
  OutputOptions output;
  ProblemOptions problem;
  std::string path;
};

int run(const InputOptions& options) {
  options.output.leave_stdout_to(options.path);
  const AttentionProblem problem = options.problem.problem();
  write_random_qkv(options.path, problem, options.problem.seed(), options.problem.terms(problem));
  if (options.output.json) {
    print_json({{"status", "ok"},
                {"output", options.path},
                {"problem", canonical_text(problem)},
                {"seed", options.problem.seed()}});
  } else {
    print_field("written", fmt::format("{} (q, k, v: random normal, seed {})", options.path, options.problem.seed()));
    print_field("problem", canonical_text(problem));
  }
  return kOk;
}

}  // namespace

Verb make_input(CommandLine& command) {
  auto options = std::make_shared<InputOptions>();
  CommandLine* verb = add_verb(
      command, "input", "write a safetensors file with random normal q, k and v of a problem, for `attune run`",
      "attune input --output qkv.safetensors --dtype fp16 --batch 2 --heads 8 --seq 1024 --head-dim 128");
  verb->add_option("--output", options->path, "safetensors to write; - is standard output").required();
  options->problem.add_to(*verb, Passes::forward);
  options->problem.add_used_lengths_to(*verb);
  options->output.add_to(*verb);
  return {verb, [options] { return run(*options); }};
}

}  // namespace attune::cli
