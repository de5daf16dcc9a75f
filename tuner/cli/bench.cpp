#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "generator/error.h"
#include "runtime/oracle/sequences.h"
#include "tuner/cli/algorithm_options.h"
#include "tuner/cli/algorithm_report.h"
#include "tuner/cli/config_options.h"
#include "tuner/cli/device_options.h"
#include "tuner/cli/exit_status.h"
#include "tuner/cli/output.h"
#include "tuner/cli/problem_options.h"
#include "tuner/cli/report.h"
#include "tuner/cli/spread_option.h"
#include "tuner/cli/table.h"
#include "tuner/cli/verb.h"
#include "tuner/trial/trial.h"

namespace attune::cli {
namespace {

struct BenchOptions {
  OutputOptions output;
  ProblemOptions problem;
  DeviceOptions device;
  ConfigOptions config;
  AlgorithmOptions algorithm;
  double seconds = 1;
  SpreadOption spread;
  bool profile = false;
};

int run_algorithms(const BenchOptions& options, const AttentionProblem& problem, const ChosenDevice& chosen) {
  const std::vector<AttentionAlgorithm> algorithms = options.algorithm.algorithms(problem, options.config);
  const std::shared_ptr<Device> device = options.device.open(chosen);
  if (!device->can_time())
    warn(fmt::format("{} cannot time: algorithms are checked, and their traffic is counted", device->description()));
  AlgorithmBenchOptions bench;
  bench.seed = options.problem.seed();
  bench.seconds = options.seconds;
  bench.cuda_ordinal = std::max(chosen.ordinal, 0);
  return report_algorithms(*device, problem, bench.seed, bench_algorithms(device, problem, algorithms, bench),
                           options.output);
}

/// What profiles the plan's kernels and no other of this process: those that make inputs have other names.
std::string ncu_command(const KernelPlan& plan, const ChosenDevice& chosen) {
  std::string names;
  for (const KernelLaunch& launch : plan.launches) names += (names.empty() ? "" : "|") + launch.entry;
  return fmt::format(
      "ncu --set full --kernel-name 'regex:^({})$' attune bench --profile --problem \"{}\" --config \"{}\" --device {}",
      names, canonical_text(plan.problem), canonical_text(plan.config), chosen.name);
}

/// One launch of each kernel, to be looked at from outside.
int run_profile(const BenchOptions& options, const AttentionProblem& problem, const ChosenDevice& chosen) {
  const Format format = options.output.format();
  if (format == Format::csv || format == Format::markdown)
    throw Error(ErrorCode::invalid_argument, "--profile makes no table: leave --format out, or take json");
  const std::shared_ptr<TunedConfigs> tuned = options.config.open_tuned_configs(options.output);
  const ConfigChoice choice = options.config.pick(options.problem.problem(), chosen.spec, tuned.get());
  const std::shared_ptr<Device> device = options.device.open(chosen);
  TrialBench bench(device, problem, options.problem.seed(), options.problem.terms(problem));
  const auto prepared = bench.prepare(choice.config);
  bench.launch_once(*prepared);
  const std::string command = ncu_command(prepared->plan, chosen);
  if (format == Format::json) {
    Json document = {{"status", "ok"}, {"problem", canonical_text(problem)}, {"device", device->description()}};
    add_choice(document, choice);
    document["launches"] = Json::array();
    for (const KernelLaunch& launch : prepared->plan.launches) document["launches"].push_back(launch.entry);
    if (chosen.is_cuda()) document["ncu"] = command;
    print_json(document);
    return kOk;
  }
  print_field("problem", canonical_text(problem));
  print_field("device", device->description());
  print_field("config", canonical_text(choice.config));
  print_origin(choice, chosen);
  for (const KernelLaunch& launch : prepared->plan.launches) print_field("launched", launch.entry);
  print_field("to profile", chosen.is_cuda() ? command : "take a GPU: ncu sees none of the emulator's kernels");
  return kOk;
}

const Table kTimesTable = {"",
                           {{"problem", "/problem"},
                            {"device", "/device"},
                            {"config", "/config"},
                            {"origin", "/origin"},
                            {"spread", "/spread"},
                            {"status", "/status"},
                            {"reason", "/reason"},
                            {"median_us", "/median_us"},
                            {"p20_us", "/p20_us"},
                            {"p80_us", "/p80_us"},
                            {"tflops", "/tflops"},
                            {"sm_clock_mhz", "/sm_clock_mhz"}}};

// The pairs that sequences of these lengths attend to, of those that a problem is counted by; 1 where no lengths are
// given.
double share_of_pairs(const AttentionProblem& problem, const TermValues& terms) {
  const bool given = !terms.bytes(Operand::seqused_q).empty();
  if (!given) return 1;
  double pairs = 0;
  for (const MaskGeometry& sequence : sequences_of(problem, terms))
    pairs += static_cast<double>(sequence.attended_pairs());
  return pairs / static_cast<double>(problem.batch) / static_cast<double>(count_attended_pairs(problem));
}

int run(const BenchOptions& options) {
  const Format format = options.output.format();
  if (!std::isfinite(options.seconds) || options.seconds <= 0) {
    throw Error(ErrorCode::invalid_argument, fmt::format("--seconds {}: must be a positive number", options.seconds));
  }
  const AttentionProblem asked = options.problem.problem(), problem = options.spread.apply(asked);
  for (const Operand operand : {Operand::q, Operand::k}) element_count(problem, operand);
  const ChosenDevice chosen = options.device.choose();
  if (!chosen.why.empty()) warn(chosen.why);
  if (options.profile && options.algorithm.given()) {
    throw Error(ErrorCode::invalid_argument,
                "--profile launches a config's kernels, --algorithm times steps: give one of them");
  }
  if (options.profile) return run_profile(options, problem, chosen);
  if (options.algorithm.given()) return run_algorithms(options, problem, chosen);
  const std::shared_ptr<TunedConfigs> tuned = options.config.open_tuned_configs(options.output);
  const ConfigChoice choice = options.config.pick(asked, chosen.spec, tuned.get());
  const std::shared_ptr<Device> device = options.device.open(chosen);
  if (!device->can_time()) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("{} cannot time: its speed says nothing about a GPU's. Use --device cuda:N where there is a GPU; "
                    "`attune show space` ranks configs by the cost model, `attune check` proves one",
                    device->description()));
  }
  TrialOptions trial;
  trial.sample_seconds = options.seconds;
  trial.cuda_ordinal = std::max(chosen.ordinal, 0);
  const TermValues terms = options.problem.terms(problem);
  const double share = share_of_pairs(problem, terms);
  TrialBench bench(device, problem, options.problem.seed(), terms);
  const Measurement measurement = bench.run(choice.config, trial);
  if (format != Format::text) {
    Json document = to_json(measurement);
    if (share != 1 && document.contains("tflops")) document["tflops"] = measurement.tflops() * share;
    document["device"] = device->description();
    document["spread"] = options.spread.factor;
    add_choice(document, choice);
    print_document(document, kTimesTable, format);
  } else {
    print_field("problem", canonical_text(problem));
    print_field("device", device->description());
    print_field("config", canonical_text(choice.config));
    print_origin(choice, chosen);
    options.spread.print();
    if (measurement.status == MeasurementStatus::ok) {
      print_field("median", fmt::format("{:.2f} us ({} samples, p20 {:.2f}, p80 {:.2f})", measurement.median_us,
                                        measurement.samples_us.size(), measurement.p20_us, measurement.p80_us));
      print_field("speed", fmt::format("{:.1f} TFLOP/s", measurement.tflops() * share));
      print_field("SM clock",
                  measurement.sm_clock_mhz ? fmt::format("{} MHz", measurement.sm_clock_mhz) : "unknown (no NVML)");
    } else {
      print_field("status", fmt::format("{}: {}", to_string(measurement.status), measurement.reason));
    }
  }
  return measurement.status == MeasurementStatus::ok ? kOk : kCheckFailed;
}

}  // namespace

Verb make_bench(CommandLine& command) {
  auto options = std::make_shared<BenchOptions>();
  CommandLine* verb = add_verb(
      command, "bench",
      "check one config and time it on a GPU, or time algorithms alternately and print the device-memory traffic that "
      "is "
      "counted for them; the emulator checks and counts, and times nothing",
      "attune bench --batch 4 --heads 16 --seq 4096 --head-dim 128 --causal --device cuda:0\n"
      "attune bench --problem \"forward bf16 b1 hq16 sq16384 d128\" --config \"sm80 q128 kv64 w4 st2\" --json\n"
      "attune bench --profile --batch 4 --heads 16 --seq 4096 --head-dim 128 --causal --device cuda:0\n"
      "attune bench --algorithm all --batch 4 --heads 16 --seq 4096 --head-dim 64 --device cuda:0");
  verb->add_option("--seconds", options->seconds, "time spent on samples (default 1), of all algorithms together");
  verb->add_flag("--profile", options->profile,
                 "launch each kernel of the config once, check and time nothing, and print the line of ncu that looks "
                 "at these launches alone");
  options->spread.add_to(*verb);
  options->problem.add_to(*verb);
  options->problem.add_used_lengths_to(*verb);
  options->device.add_to(*verb);
  options->config.add_config_to(*verb);
  options->algorithm.add_several_to(*verb);
  options->config.add_database_to(*verb);
  options->output.add_with_table_to(*verb);
  return {verb, [options] { return run(*options); }};
}

}  // namespace attune::cli
