#include <fmt/core.h>

#include <map>
#include <optional>
#include <vector>

#include "attune/attention.h"
#include "generator/error.h"
#include "generator/generate.h"
#include "tuner/cli/algorithm_options.h"
#include "tuner/cli/algorithm_report.h"
#include "tuner/cli/config_options.h"
#include "tuner/cli/device_options.h"
#include "tuner/cli/exit_status.h"
#include "tuner/cli/output.h"
#include "tuner/cli/problem_options.h"
#include "tuner/cli/report.h"
#include "tuner/cli/verb.h"
#include "tuner/trial/trial.h"

namespace attune::cli {
namespace {

struct CheckOptions {
  OutputOptions output;
  ProblemOptions problem;
  DeviceOptions device;
  ConfigOptions config;
  AlgorithmOptions algorithm;
};

struct CheckOutcome {
  std::string status, reason;
  std::vector<OutputErrors> outputs;
};

CheckOutcome check(AttentionRuntime& runtime, const AttentionProblem& problem, const ConfigChoice& choice,
                   std::uint64_t seed, const TermValues& terms, const OutputOptions& output) {
  const Device& device = *runtime.device();
  const auto prepared =
      runtime.prepare(generate(problem, choice.config, device.spec(), runtime_templates(), device.target()));
  for (const auto& kernel : prepared->kernels) {
    const KernelResources& resources = kernel->resources();
    output.say(fmt::format(
        "kernel: {} registers, {} bytes spilled, {} bytes shared, {}", resources.registers, resources.spill_bytes,
        resources.shared_bytes,
        resources.from_cache ? "from the cache" : fmt::format("compiled in {:.0f} ms", resources.compile_ms)));
  }
  try {
    CheckOutcome outcome{"ok", "", {}};
    TrialBench bench(runtime.device(), problem, seed, terms);
    outcome.outputs = bench.check(*prepared);
    for (const OutputErrors& output : outcome.outputs) {
      if (output.within) continue;
      outcome.status = "wrong_result";
      outcome.reason += (outcome.reason.empty() ? "" : "; ") + output.complaint;
    }
    return outcome;
  } catch (const Error& error) {
    // A kernel that breaks a rule of the machine has failed its check; anything else is not about the kernel.
    if (error.code() != ErrorCode::emulator) throw;
    return {"rule_broken", error.what(), {}};
  }
}

int run(const CheckOptions& options) {
  const AttentionProblem problem = options.problem.problem();
  for (const Operand operand : {Operand::q, Operand::k}) element_count(problem, operand);
  const ChosenDevice chosen = options.device.choose();
  if (!chosen.why.empty()) warn(chosen.why);
  if (options.algorithm.given()) {
    const std::vector<AttentionAlgorithm> algorithms = options.algorithm.algorithms(problem, options.config);
    const std::shared_ptr<Device> device = options.device.open(chosen);
    const std::uint64_t seed = options.problem.seed();
    return report_algorithms(*device, problem, seed,
                             bench_algorithms(device, problem, algorithms, {.seed = seed, .time = false}),
                             options.output);
  }
  const std::shared_ptr<TunedConfigs> tuned = options.config.open_tuned_configs(options.output);
  const ConfigChoice choice = options.config.pick(problem, chosen.spec, tuned.get());

  AttentionRuntime runtime(options.device.open(chosen), tuned);
  const CheckOutcome outcome =
      check(runtime, problem, choice, options.problem.seed(), options.problem.terms(problem), options.output);
  if (options.output.json) {
    Json document = {
        {"status", outcome.status}, {"problem", canonical_text(problem)}, {"device", runtime.device()->description()}};
    add_choice(document, choice);
    document["seed"] = options.problem.seed();
    document["outputs"] = to_json(outcome.outputs);
    if (!outcome.reason.empty()) document["reason"] = outcome.reason;
    print_json(document);
  } else {
    print_field("problem", canonical_text(problem));
    print_field("device", runtime.device()->description());
    print_field("config", canonical_text(choice.config));
    print_origin(choice, chosen);
    print_errors(outcome.outputs);
    print_field("status",
                outcome.reason.empty() ? outcome.status : fmt::format("{}: {}", outcome.status, outcome.reason));
  }
  return outcome.status == "ok" ? kOk : kCheckFailed;
}

}  // namespace

Verb make_check(CommandLine& command) {
  auto options = std::make_shared<CheckOptions>();
  CommandLine* verb = add_verb(
      command, "check",
      "run one problem with one config and compare the result with the double-precision oracle; the exit status is 0 "
      "only if the errors are within the bounds",
      "attune check --batch 2 --heads 8 --kv-heads 2 --seq 127 --kv-seq 1000 --head-dim 72 --causal\n"
      "attune check --problem \"forward fp16 b1 hq3 sq17 d64\" --device emulator --async lazy --schedule "
      "random --json\n"
      "attune check --pass backward --heads 2 --seq 100 --head-dim 64 --causal --device emulator\n"
      "attune check --algorithm standard --heads 2 --seq 100 --head-dim 64 --device emulator");
  options->problem.add_to(*verb);
  options->problem.add_used_lengths_to(*verb);
  options->device.add_to(*verb);
  options->config.add_config_to(*verb);
  options->algorithm.add_several_to(*verb);
  options->config.add_database_to(*verb);
  options->output.add_to(*verb);
  return {verb, [options] { return run(*options); }};
}

}  // namespace attune::cli
