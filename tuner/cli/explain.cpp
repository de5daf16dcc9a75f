#include <fmt/core.h>

#include <memory>
#include <utility>

#include "tuner/cli/config_options.h"
#include "tuner/cli/device_options.h"
#include "tuner/cli/exit_status.h"
#include "tuner/cli/explanation.h"
#include "tuner/cli/output.h"
#include "tuner/cli/problem_options.h"
#include "tuner/cli/table.h"
#include "tuner/cli/verb.h"

namespace attune::cli {
namespace {

struct ExplainOptions {
  OutputOptions output;
  ProblemOptions problem;
  DeviceOptions device;
  ConfigOptions config;
  std::size_t limit = 10;
};

const Table kCandidateTable = {"/candidates",
                               {{"config", "/config"},
                                {"picked", "/picked"},
                                {"status", "/status"},
                                {"median_us", "/median_us"},
                                {"wide_median_us", "/wide_median_us"},
                                {"tflops", "/tflops"},
                                {"predicted_us", "/predicted_us"},
                                {"registers", "/registers"},
                                {"ctas_per_sm", "/ctas_per_sm"},
                                {"waves", "/waves"},
                                {"why_not", "/why_not"}}};

int run(const ExplainOptions& options) {
  const Format format = options.output.format();
  const AttentionProblem problem = options.problem.problem();
  const ChosenDevice device = options.device.choose();
  if (!device.why.empty()) warn(fmt::format("no --target given: explaining for {}", device.spec.name));
  const std::shared_ptr<TunedConfigs> tuned = options.config.open_tuned_configs(options.output);
  ConfigChoice choice = options.config.pick(problem, device.spec, tuned.get());
  const Explanation explanation = explain(problem, device, std::move(choice), *tuned, options.limit);
  if (format == Format::text) {
    print_explanation(explanation);
  } else {
    print_document(to_json(explanation), kCandidateTable, format);
    if (format != Format::json && explanation.not_shown > 0)
      warn(fmt::format("{} more candidates are not shown (--limit 0 lists all)", explanation.not_shown));
  }
  return kOk;
}

}  // namespace

Verb make_explain(CommandLine& command) {
  auto options = std::make_shared<ExplainOptions>();
  CommandLine* verb = add_verb(command, "explain",
                               "explain why a config is picked for a problem: its origin, the other candidates with "
                               "their times, the cost model, occupancy and roofline; this needs no GPU",
                               "attune explain --target h200 --batch 4 --heads 16 --seq 4096 --head-dim 128 --causal\n"
                               "attune explain --problem \"forward bf16 b4 hq16 sq4096 d72\" --device cuda:0 --json");
  verb->add_option("--limit", options->limit, "list at most so many candidates, 0 for all (default 10)");
  options->problem.add_to(*verb);
  options->device.add_target_to(*verb);
  options->config.add_database_to(*verb);
  options->output.add_with_table_to(*verb);
  return {verb, [options] { return run(*options); }};
}

}  // namespace attune::cli
