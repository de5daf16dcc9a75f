#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "generator/error.h"
#include "generator/generate.h"
#include "generator/problem/dispatch_class.h"
#include "generator/problem/problem_fields.h"
#include "runtime/cuda/cubin_cache.h"
#include "runtime/cuda/kernel_source.h"
#include "runtime/system/template_folder.h"
#include "tuner/cli/compile.h"
#include "tuner/cli/config_options.h"
#include "tuner/cli/device_options.h"
#include "tuner/cli/exit_status.h"
#include "tuner/cli/output.h"
#include "tuner/cli/problem_options.h"
#include "tuner/cli/shapes_options.h"
#include "tuner/cli/verb.h"
#include "tuner/database/kernel_pack.h"
#include "tuner/database/measurement.h"

namespace attune::cli {
namespace {

struct PackOptions {
  OutputOptions output;
  ProblemOptions problem;
  ShapesOptions shapes;
  DeviceOptions device;
  ConfigOptions config;
  std::string path, show;
  bool force = false;
  int workers = 0;
  double timeout_seconds = 60;
};

// A problem, and the config that its calls will have.
struct Picked {
  AttentionProblem problem;
  ConfigChoice choice;
  std::vector<KernelConfig> passed_over;  // what does not compile
};

// Those that a row tells apart: scale and layout have none.
std::vector<Picked> different(const std::vector<AttentionProblem>& problems) {
  std::vector<Picked> kept;
  std::set<std::string> seen;
  for (const AttentionProblem& problem : problems) {
    AttentionProblem row = problem;
    reset_arguments(&row);
    row.layout = Layout::bshd;
    if (seen.insert(canonical_text(row)).second) kept.push_back({row, {}, {}});
  }
  return kept;
}

ConfigChoice pick(const Picked& picked, const DeviceSpec& device, ConfigSource& source) {
  const std::optional<ConfigChoice> found = source.find(picked.problem, device, picked.passed_over);
  if (found &&
      std::find(picked.passed_over.begin(), picked.passed_over.end(), found->config) == picked.passed_over.end())
    return *found;
  return {default_config(picked.problem, device), ConfigOrigin::default_config, "", tune_command(picked.problem),
          ConfigBasis::model};
}

[[noreturn]] void refuse_kernel(const Picked& picked, const PrecompileOutcome& outcome) {
  throw Error(
      ErrorCode::compile_failed,
      fmt::format(
          "the config {} of \"{}\" does not compile: {}: {}{}", canonical_text(picked.choice.config),
          canonical_text(picked.problem), to_string(outcome.status), outcome.reason,
          outcome.status == MeasurementStatus::compile_timed_out ? "; --compile-timeout gives it more seconds" : ""));
}

// Compiles what was picked, into the cubin cache; what does not compile gives way to the next pick, as in a call.
void compile_picks(std::vector<Picked>& all, const PackOptions& options, const DeviceSpec& device,
                   ConfigSource& source) {
  std::vector<Picked*> waiting;
  for (Picked& picked : all) waiting.push_back(&picked);
  while (!waiting.empty()) {
    std::vector<PrecompileJob> jobs;
    std::map<std::string, std::size_t> job_of;  // by kernel class
    std::vector<std::size_t> job_of_waiting;
    for (Picked* const picked : waiting) {
      picked->choice = pick(*picked, device, source);
      const auto [found, is_new] = job_of.emplace(kernel_class(picked->problem, picked->choice.config), jobs.size());
      if (is_new) jobs.push_back({picked->problem, picked->choice.config});
      job_of_waiting.push_back(found->second);
    }
    const std::vector<PrecompileOutcome> outcomes = precompile_and_say(
        jobs, {.spec = device, .workers = options.workers, .timeout_seconds = options.timeout_seconds, .command = {}});
    std::vector<Picked*> again;
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      const PrecompileOutcome& outcome = outcomes[job_of_waiting[i]];
      if (outcome.status == MeasurementStatus::ok) continue;
      Picked& picked = *waiting[i];
      if (picked.choice.origin == ConfigOrigin::default_config ||
          outcome.status == MeasurementStatus::compile_timed_out) {
        refuse_kernel(picked, outcome);
      }
      warn(fmt::format("the tuned config {} is passed over for \"{}\": {}", canonical_text(picked.choice.config),
                       canonical_text(picked.problem), outcome.reason));
      picked.passed_over.push_back(picked.choice.config);
      again.push_back(&picked);
    }
    waiting = std::move(again);
  }
}

PackContents contents_of(const std::vector<Picked>& all, const DeviceSpec& device) {
  PackContents contents;
  contents.manifest = {.attune_version = std::string(attune_version()),
                       .templates_hash = hash_of_templates(runtime_templates()),
                       .target = device.key,
                       .device = device.name,
                       .sm_count = device.sm_count,
                       .arch = arch_name(device),
                       .compiler = nvrtc_identity(),
                       .created_at = utc_now()};
  CubinCache cache;
  std::set<std::string> keys;
  for (const Picked& picked : all) {
    const KernelPlan plan = generate(picked.problem, picked.choice.config, device, runtime_templates());
    contents.picks.push_back({picked.problem, picked.choice.config, std::string(to_string(picked.choice.origin)),
                              picked.choice.detail, plan.source_hash()});
    for (const KernelLaunch& launch : plan.launches) {
      const std::string key = kernel_key(launch);
      if (!keys.insert(key).second) continue;
      CompiledText compiled = cache.get(launch);
      contents.kernels.push_back({key, launch.entry, launch.source_hash, std::move(compiled.image),
                                  compiled.resources.log, compiled.resources.compile_ms});
    }
  }
  return contents;
}

std::size_t bytes_of(const std::vector<PackKernel>& kernels) {
  std::size_t bytes = 0;
  for (const PackKernel& kernel : kernels) bytes += kernel.image.size();
  return bytes;
}

Json document_of(const PackManifest& manifest, const std::vector<PackPick>& picks,
                 const std::vector<PackKernel>& kernels) {
  Json document = {{"status", "ok"},
                   {"attune_version", manifest.attune_version},
                   {"templates_hash", manifest.templates_hash},
                   {"target", manifest.target},
                   {"device", manifest.device},
                   {"sm_count", manifest.sm_count},
                   {"arch", manifest.arch},
                   {"compiler", manifest.compiler},
                   {"created_at", manifest.created_at},
                   {"picks", Json::array()},
                   {"kernels", Json::array()}};
  for (const PackPick& pick : picks) {
    document["picks"].push_back({{"problem", canonical_text(pick.problem)},
                                 {"config", canonical_text(pick.config)},
                                 {"origin", pick.origin},
                                 {"detail", pick.detail},
                                 {"source_hash", pick.source_hash}});
  }
  for (const PackKernel& kernel : kernels) {
    document["kernels"].push_back({{"key", kernel.key},
                                   {"entry", kernel.entry},
                                   {"source_hash", kernel.source_hash},
                                   {"bytes", kernel.image.size()},
                                   {"compile_ms", kernel.compile_ms}});
  }
  return document;
}

void print_manifest(const PackManifest& manifest, std::size_t picks, const std::vector<PackKernel>& kernels) {
  print_field("target", fmt::format("{}: {} with {} SMs, {}", manifest.target, manifest.device, manifest.sm_count,
                                    manifest.arch));
  print_field("made by",
              fmt::format("attune {} with {}, {}", manifest.attune_version, manifest.compiler, manifest.created_at));
  print_field("templates", manifest.templates_hash);
  print_field("problems", std::to_string(picks));
  print_field("kernels",
              fmt::format("{}, {:.1f} MiB", kernels.size(), static_cast<double>(bytes_of(kernels)) / (1 << 20)));
}

int show(const PackOptions& options) {
  const bool making = !options.path.empty() || options.shapes.given() || options.problem.any_given() ||
                      options.device.any_given() || options.force;
  if (making) refuse("--show looks at a pack that is there: leave out what makes one");
  const KernelPack pack(options.show);
  std::string why_not;
  try {
    pack.require_usable(runtime_templates());
  } catch (const Error& error) {
    why_not = error.what();
  }
  if (options.output.json) {
    Json document = document_of(pack.manifest(), pack.picks(), pack.kernels());
    document["content_hash"] = pack.content_hash();
    document["usable"] = why_not.empty();
    if (!why_not.empty()) document["why_not"] = why_not;
    print_json(document);
  } else {
    print_field("pack", options.show);
    print_manifest(pack.manifest(), pack.picks().size(), pack.kernels());
    for (const PackPick& pick : pack.picks()) {
      print_line(fmt::format("  {:<56} {}  ({}{}{})", canonical_text(pick.problem), canonical_text(pick.config),
                             pick.origin, pick.detail.empty() ? "" : ": ", pick.detail));
    }
    print_field("content", fmt::format("whole, {}", pack.content_hash()));
    print_field("usable", why_not.empty() ? "by this version" : "no: " + why_not);
  }
  return why_not.empty() ? kOk : kCheckFailed;
}

int make(const PackOptions& options) {
  if (options.path.empty()) refuse("--output is missing: name the pack to be written, or one to look at with --show");
  options.output.leave_stdout_to(options.path);
  require_limits(options.workers, options.timeout_seconds);
  std::vector<Picked> all = different(options.shapes.problems(options.problem));
  all = select(all, options.shapes.shard());
  const ChosenDevice chosen = options.device.choose();
  if (chosen.spec.name.starts_with("generic ")) {
    refuse(
        fmt::format("--target {} stands for several models, and a pack is for one: name it (`attune devices` lists "
                    "them), or make the pack on its machine with --device cuda:0",
                    chosen.spec.key));
  }
  std::vector<std::filesystem::path> inputs;
  if (options.shapes.given()) inputs.emplace_back(options.shapes.file());
  require_writable_pack(options.path, inputs, options.force);
  if (!chosen.why.empty()) warn(fmt::format("no --target given: packing for {}", chosen.spec.name));
  nvrtc_identity();  // without NVRTC nothing is begun

  const std::shared_ptr<TunedConfigs> source = options.config.open_tuned_configs(options.output);
  compile_picks(all, options, chosen.spec, *source);
  const PackContents contents = contents_of(all, chosen.spec);
  write_kernel_pack(options.path, contents, inputs, options.force);

  std::size_t untuned = 0;
  for (const PackPick& pick : contents.picks) untuned += pick.origin != to_string(ConfigOrigin::exact);
  std::error_code error;
  const bool is_file = std::filesystem::is_regular_file(options.path, error);
  // What was written is read again: a pack travels to where nobody can mend it.
  const std::string content_hash = is_file ? KernelPack(options.path).content_hash() : "";
  if (options.output.json) {
    Json document = document_of(contents.manifest, contents.picks, contents.kernels);
    document["output"] = options.path;
    document["not_tuned_for_this_gpu"] = untuned;
    if (is_file) document["content_hash"] = content_hash;
    print_json(document);
  } else {
    print_manifest(contents.manifest, contents.picks.size(), contents.kernels);
    if (untuned > 0) {
      print_field("not tuned", fmt::format("{} of them on this GPU, whose configs come from problems nearby or are the "
                                           "default: `attune tune --shapes` first gives their kernels",
                                           untuned));
    }
    print_field("written", options.path);
    if (is_file) print_field("to use it", fmt::format("ATTUNE_PACK={}", options.path));
  }
  return kOk;
}

int run(const PackOptions& options) { return options.show.empty() ? make(options) : show(options); }

}  // namespace

Verb make_pack(CommandLine& command) {
  auto options = std::make_shared<PackOptions>();
  CommandLine* verb = add_verb(
      command, "pack",
      "compile the kernels that calls of a list of problems would pick into one file, which serves them on a machine "
      "without NVRTC (ATTUNE_PACK, attune_load_pack); this needs no GPU. Or show such a file",
      "attune pack --target h200 --shapes shapes.csv --output model.attune\n"
      "attune pack --show model.attune");
  verb->add_option("--output", options->path, "pack to write");
  verb->add_flag("--force", options->force, "replace what is there");
  verb->add_option("--show", options->show, "pack to look at: what made it, what is in it, and whether it is whole");
  options->shapes.add_to(*verb, "of equally many problems");
  verb->add_option("--workers", options->workers, "processes (default 0: as many as there are cores)");
  verb->add_option("--compile-timeout", options->timeout_seconds,
                   "seconds after which a compilation is ended (default 60)");
  options->problem.add_to(*verb);
  options->device.add_target_to(*verb);
  options->config.add_database_to(*verb);
  options->output.add_to(*verb);
  return {verb, [options] { return run(*options); }};
}

}  // namespace attune::cli
