#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "generator/config/config_space.h"
#include "generator/error.h"
#include "generator/generate.h"
#include "runtime/cuda/cubin_cache.h"
#include "runtime/cuda/nvrtc_compiler.h"
#include "runtime/system/printable.h"
#include "runtime/system/template_folder.h"
#include "tuner/cli/algorithm_options.h"
#include "tuner/cli/algorithm_report.h"
#include "tuner/cli/config_options.h"
#include "tuner/cli/device_options.h"
#include "tuner/cli/exit_status.h"
#include "tuner/cli/output.h"
#include "tuner/cli/plan_document.h"
#include "tuner/cli/problem_options.h"
#include "tuner/cli/subprocess.h"
#include "tuner/cli/verb.h"
#include "tuner/database/output_file.h"

namespace attune::cli {
namespace {

struct ShowOptions {
  OutputOptions output;
  ProblemOptions problem;
  DeviceOptions device;
  ConfigOptions config;
  AlgorithmOptions algorithm;
  std::string what;
  std::size_t limit = 20;
  std::optional<std::size_t> launch;  ///< from 1
  std::string folder;                 ///< to write sources to; empty: standard output
};

/// A plan, and where its config or which algorithm it came from.
struct ShownPlan {
  KernelPlan plan;
  ConfigChoice choice;
  DeviceSpec device;
  std::optional<AttentionAlgorithm> algorithm;
  std::optional<std::size_t> launch;  ///< the only one to show, from 1

  /// The launches to show. Throws Error(invalid_argument) if there is none of that number.
  std::vector<KernelLaunch> launches() const {
    if (!launch) return plan.launches;
    if (*launch < 1 || *launch > plan.launches.size()) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("--launch {}: the plan has launches 1 to {}", *launch, plan.launches.size()));
    }
    return {plan.launches[*launch - 1]};
  }
};

std::string origin_of(const ShownPlan& shown) {
  return shown.algorithm ? fmt::format("of algorithm {}", to_string(*shown.algorithm)) : describe_origin(shown.choice);
}

Json head_of(const ShownPlan& shown) {
  Json document = {{"problem", canonical_text(shown.plan.problem)}, {"target", shown.device.key}};
  if (shown.algorithm) document["algorithm"] = to_string(*shown.algorithm);
  document["config"] = canonical_text(shown.choice.config);
  document["origin"] = shown.algorithm ? "algorithm" : to_string(shown.choice.origin);
  if (!shown.choice.detail.empty()) document["origin_detail"] = shown.choice.detail;
  document["kernel_class"] = shown.plan.kernel_class;
  return document;
}

/// Text of each launch, alone on stdout, or in a document as launches[i][key].
template <typename TextOfLaunch>
int show_text(const ShownPlan& shown, const OutputOptions& output, const char* key, TextOfLaunch text_of) {
  Json document = head_of(shown);
  document["launches"] = Json::array();
  for (const KernelLaunch& launch : shown.launches()) {
    const std::string text = text_of(launch);
    if (output.json) {
      document["launches"].push_back({{"entry", launch.entry}, {"arch", launch.arch}, {key, text}});
    } else {
      print(text);
      if (!text.empty() && text.back() != '\n') print("\n");
    }
  }
  if (output.json) print_json(document);
  return kOk;
}

/// The source of each launch as a file of the folder, which is made if it is missing: "1_attune_backward_delta.cu".
int write_sources(const ShownPlan& shown, const std::string& folder, const OutputOptions& output) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw Error(ErrorCode::io, fmt::format("folder {} cannot be made: {}", printable(folder), error.message()));
  Json document = head_of(shown);
  document["launches"] = Json::array();
  for (const KernelLaunch& launch : shown.launches()) {
    std::size_t number = shown.launch.value_or(0);
    if (!shown.launch) number = document["launches"].size() + 1;
    const std::filesystem::path path = std::filesystem::path(folder) / fmt::format("{}_{}.cu", number, launch.entry);
    OutputFile file(path);
    file.write(launch.source);
    file.commit();
    document["launches"].push_back({{"entry", launch.entry}, {"arch", launch.arch}, {"file", path.string()}});
    if (!output.json) print(fmt::format("{}\n", path.string()));
  }
  if (output.json) print_json(document);
  return kOk;
}

int show_resources(const ShownPlan& shown, const OutputOptions& output) {
  Json document = head_of(shown);
  document["compiler"] = nvrtc_identity();
  document["launches"] = Json::array();
  CubinCache cache;
  output.say(fmt::format("cubin cache {}", cache.folder().string()));
  for (const KernelLaunch& launch : shown.launches()) {
    const CompiledText compiled = cache.get(launch);
    const KernelResources& resources = compiled.resources;
    output.say(resources.log);
    if (output.json) {
      document["launches"].push_back({{"entry", launch.entry},
                                      {"arch", launch.arch},
                                      {"registers", resources.registers},
                                      {"spill_bytes", resources.spill_bytes},
                                      {"stack_bytes", resources.stack_bytes},
                                      {"shared_bytes", launch.shared_bytes},
                                      {"cubin_bytes", compiled.image.size()},
                                      {"compile_ms", resources.compile_ms},
                                      {"from_cache", resources.from_cache},
                                      {"advisories", resources.advisories}});
      continue;
    }
    print_field("kernel", fmt::format("{} ({})", launch.entry, launch.arch));
    print_field("config", fmt::format("{} ({})", canonical_text(shown.choice.config), origin_of(shown)));
    print_field("registers", fmt::format("{} per thread", resources.registers));
    print_field("spilled", fmt::format("{} bytes per thread", resources.spill_bytes));
    print_field("stack", fmt::format("{} bytes per thread", resources.stack_bytes));
    print_field("shared", fmt::format("{} bytes per CTA, dynamic", launch.shared_bytes));
    print_field("cubin", fmt::format("{} bytes", compiled.image.size()));
    print_field("compiled", fmt::format("in {:.0f} ms by {}{}", resources.compile_ms, nvrtc_identity(),
                                        resources.from_cache ? " (now from the cache)" : ""));
    for (const std::string& advisory : resources.advisories) print_field("advisory", advisory);
  }
  if (output.json) print_json(document);
  return kOk;
}

int show_plan(const ShownPlan& shown, const OutputOptions& output) {
  const KernelPlan& plan = shown.plan;
  Json document = head_of(shown);
  document.update(plan_document(plan));
  std::vector<MemoryTraffic> traffic;  // of each launch
  if (shown.algorithm) {
    traffic = count_traffic(plan, *shown.algorithm, plan.problem);
    document["counted_traffic"] = to_json(total_traffic(traffic));
    for (std::size_t i = 0; i < traffic.size(); ++i) document["launches"][i]["counted_traffic"] = to_json(traffic[i]);
  }
  if (output.json) {
    print_json(document);
    return kOk;
  }
  print_field("problem", canonical_text(plan.problem));
  print_field("target", fmt::format("{} ({})", shown.device.key, shown.device.name));
  print_field("config", canonical_text(shown.choice.config));
  print_field("origin", origin_of(shown));
  print_field("kernel class", plan.kernel_class);
  print_field("work", fmt::format("{:.4g} FLOP, at least {:.4g} bytes of device memory", plan.flops, plan.bytes));
  const std::size_t zeroed = plan.zeroed_bytes_of(plan.problem);
  print_field("workspace", fmt::format("{} bytes{}", plan.workspace_bytes_of(plan.problem),
                                       zeroed != 0 ? fmt::format(", the first {} zeroed before", zeroed) : ""));
  for (const WorkspaceBuffer& buffer : plan.buffers) {
    print_field(fmt::format("  {}", buffer.buffer.name), fmt::format("{} bytes at {}", buffer.bytes_of(plan.problem),
                                                                     plan.buffer_offset(buffer.buffer, plan.problem)));
  }
  if (shown.algorithm) print_field("counted", describe(total_traffic(traffic)));
  for (std::size_t index = 0; index < plan.launches.size(); ++index) {
    const KernelLaunch& launch = plan.launches[index];
    const bool of_keys = launch.tile_rows == TileRows::keys;
    print_field("launch", fmt::format("{} for {}", launch.entry, launch.arch));
    if (launch.tile_rows == TileRows::all) {
      print_field("  grid",
                  fmt::format("{} CTAs: one for each head and batch entry, which walks over {} tiles of {} queries",
                              launch.grid_x(plan.problem), launch.query_tiles(plan.problem), launch.rows_per_tile));
    } else if (launch.tile_rows == TileRows::of_batch) {
      print_field("  grid",
                  fmt::format("{} CTAs: one for each query head, of all batch entries", launch.grid_x(plan.problem)));
    } else if (launch.tile_rows == TileRows::following) {
      print_field("  grid",
                  fmt::format("{} CTAs: one for {} queries of all heads and batch entries, with {} parts of "
                              "their keys",
                              launch.grid_x(plan.problem), launch.rows_per_tile, launch.split.parts_of(plan.problem)));
    } else {
      print_field("  grid", fmt::format("{} CTAs{}: {}{} tiles of {} {}, for each {} and batch entry",
                                        launch.grid_x(plan.problem),
                                        launch.cluster > 1 ? fmt::format(" in clusters of {}", launch.cluster) : "",
                                        launch.split.is_split()
                                            ? fmt::format("{} parts of the {} of ", launch.split.parts_of(plan.problem),
                                                          of_keys ? "queries" : "keys")
                                            : "",
                                        of_keys ? launch.key_tiles(plan.problem) : launch.query_tiles(plan.problem),
                                        launch.rows_per_tile, of_keys ? "keys" : "queries",
                                        of_keys ? (launch.kv_grad_per_query_head ? "query head" : "key/value head")
                                        : launch.heads_per_tile > 1 ? fmt::format("{} heads", launch.heads_per_tile)
                                                                    : "head"));
    }
    print_field("  CTA", fmt::format("{} threads, {} bytes of shared memory", launch.threads, launch.shared_bytes));
    if (shown.algorithm) print_field("  counted", describe(traffic[index]));
    print_field("  source", fmt::format("{} lines", launch.lines.size()));
    print_field("  arguments", fmt::format("{} bytes", launch.arguments.bytes));
    for (std::size_t i = 0; i < launch.arguments.fields.size(); ++i) {
      const KernelArgument& field = launch.arguments.fields[i];
      print_field("", fmt::format("{:4} {} {}", launch.arguments.offsets[i], type_text(field), to_string(field)));
    }
  }
  return kOk;
}

int show_space(const AttentionProblem& problem, const DeviceSpec& device, std::size_t limit,
               const OutputOptions& output) {
  const std::vector<Candidate> space = config_space(problem, device);
  const auto first_rejected =
      std::find_if(space.begin(), space.end(), [](const Candidate& candidate) { return !candidate.feasible(); });
  const auto feasible = static_cast<std::size_t>(first_rejected - space.begin());
  const std::size_t rejected = space.size() - feasible;
  const std::size_t most = limit == 0 ? space.size() : limit;
  const std::size_t shown_feasible = std::min(most, feasible), shown_rejected = std::min(most, rejected);

  Json document = {
      {"problem", canonical_text(problem)}, {"target", device.key}, {"feasible", feasible}, {"rejected", rejected}};
  document["candidates"] = Json::array();
  document["rejections"] = Json::array();
  if (!output.json) {
    print_field("problem", canonical_text(problem));
    print_field("target", fmt::format("{} ({})", device.key, device.name));
    print_field("feasible",
                fmt::format("{}, in the cost model's order (estimates for ranking, not measurements)", feasible));
  }
  for (std::size_t i = 0; i < shown_feasible; ++i) {
    const CostEstimate& cost = space[i].cost;
    document["candidates"].push_back({{"config", canonical_text(space[i].config)},
                                      {"estimated_us", cost.microseconds},
                                      {"matrix_us", cost.matrix_microseconds},
                                      {"exponential_us", cost.exponential_microseconds},
                                      {"shared_us", cost.shared_microseconds},
                                      {"memory_us", cost.memory_microseconds},
                                      {"registers", cost.registers},
                                      {"ctas_per_sm", cost.ctas_per_sm},
                                      {"waves", cost.waves}});
    if (!output.json) {
      print(fmt::format("{:>6}  {:<48} {:>10.1f} us  {} CTAs/SM  {:.2f} waves\n", i + 1,
                        canonical_text(space[i].config), cost.microseconds, cost.ctas_per_sm, cost.waves));
    }
  }
  if (!output.json && shown_feasible < feasible)
    print(fmt::format("        ... and {} more (--limit 0 lists all)\n", feasible - shown_feasible));
  if (!output.json) print_field("rejected", std::to_string(rejected));
  for (std::size_t i = feasible; i < feasible + shown_rejected; ++i) {
    document["rejections"].push_back({{"config", canonical_text(space[i].config)}, {"reasons", space[i].reasons}});
    if (!output.json)
      print(fmt::format("        {:<48} {}\n", canonical_text(space[i].config), fmt::join(space[i].reasons, "; ")));
  }
  if (!output.json && shown_rejected < rejected)
    print(fmt::format("        ... and {} more (--limit 0 lists all)\n", rejected - shown_rejected));
  if (output.json) print_json(document);
  return kOk;
}

ShownPlan plan_of_config(const ShowOptions& options, const AttentionProblem& problem, const DeviceSpec& device) {
  const std::shared_ptr<TunedConfigs> tuned = options.config.open_tuned_configs(options.output);
  const ConfigChoice choice = options.config.pick(problem, device, tuned.get());
  return {generate(problem, choice.config, device, runtime_templates()), choice, device, std::nullopt, options.launch};
}

ShownPlan plan_of_algorithm(const ShowOptions& options, const AttentionProblem& problem, const DeviceSpec& device) {
  const std::vector<AttentionAlgorithm> algorithms = options.algorithm.algorithms(problem, options.config);
  if (algorithms.size() != 1)
    throw Error(ErrorCode::invalid_argument, "show takes one --algorithm: standard, online, fa1 or fa2");
  KernelPlan plan = generate(problem, algorithms.front(), device, runtime_templates());
  const ConfigChoice choice{plan.config, ConfigOrigin::default_config, "", ""};
  return {std::move(plan), choice, device, algorithms.front(), options.launch};
}

// The word of a field as a problem's text has it, and what else is known of it.
int show_fields(const ShowOptions& options) {
  if (options.problem.any_given()) refuse("show fields lists what every problem has; a problem has no meaning there");
  Json document = {{"fields", Json::array()}};
  for (const ProblemField& field : problem_fields()) {
    if (options.output.json) {
      document["fields"].push_back({{"key", field.key},
                                    {"flag", field.flag.empty() ? Json() : Json(with_dashes(field))},
                                    {"word", field.word.empty() ? Json() : Json(field.word)},
                                    {"names", field.names},
                                    {"form", to_string(field.form)},
                                    {"role", to_string(field.role)},
                                    {"backward_only", field.backward_only},
                                    {"help", field.help}});
      continue;
    }
    print_field(field.key, fmt::format("{} ({}{})", field.help, to_string(field.role),
                                       field.flag.empty() ? "" : ", " + with_dashes(field)));
  }
  if (options.output.json) print_json(document);
  return kOk;
}

int run(const ShowOptions& options) {
  if (options.what == "fields") return show_fields(options);
  const AttentionProblem problem = options.problem.problem();
  const ChosenDevice chosen = options.device.choose();
  if (!chosen.why.empty()) warn(fmt::format("no --target given: generating for {}", chosen.spec.name));
  if (options.launch && (options.what == "plan" || options.what == "space"))
    throw Error(ErrorCode::invalid_argument, fmt::format("--launch has no meaning for show {}", options.what));
  if (!options.folder.empty() && options.what != "source")
    throw Error(ErrorCode::invalid_argument, fmt::format("--output has no meaning for show {}", options.what));
  if (options.algorithm.given() && options.what == "space")
    throw Error(ErrorCode::invalid_argument, "show space lists configs; --algorithm has no meaning there");
  if (options.what == "space") return show_space(problem, chosen.spec, options.limit, options.output);

  const ShownPlan shown = options.algorithm.given() ? plan_of_algorithm(options, problem, chosen.spec)
                                                    : plan_of_config(options, problem, chosen.spec);
  options.output.say(fmt::format("config {} ({})", canonical_text(shown.choice.config), origin_of(shown)));
  if (!options.folder.empty()) return write_sources(shown, options.folder, options.output);
  if (options.what == "source")
    return show_text(shown, options.output, "source", [](const KernelLaunch& launch) { return launch.source; });
  if (options.what == "ptx") {
    return show_text(shown, options.output, "ptx",
                     [](const KernelLaunch& launch) { return compile_with_nvrtc(launch, CompileOutput::ptx).image; });
  }
  if (options.what == "sass") {
    return show_text(shown, options.output, "sass",
                     [](const KernelLaunch& launch) { return disassemble(CubinCache().get(launch).image); });
  }
  if (options.what == "resources") return show_resources(shown, options.output);
  return show_plan(shown, options.output);
}

}  // namespace

Verb make_show(CommandLine& command) {
  auto options = std::make_shared<ShowOptions>();
  CommandLine* verb =
      add_verb(command, "show", "print what is generated for a problem; this needs no GPU",
               "attune show source --target a100 --seq 4096 --head-dim 128 --causal | nvcc -x cu "
               "-arch=sm_80 -cubin -o k.cubin -\n"
               "attune show space --target h200 --heads 16 --seq 4096 --head-dim 64 --limit 5\n"
               "attune show source --algorithm standard --launch 2 --target a100 --seq 4096 --head-dim 64");
  verb->add_option("what", options->what,
                   "source (CUDA, alone on stdout), ptx, resources (registers, spills), plan (launches, arguments), "
                   "space (candidates, and why others are rejected), sass (where nvdisasm is found), fields (what a "
                   "problem says, and what depends on it; takes no problem)")
      .required()
      .one_of({"source", "ptx", "resources", "plan", "space", "sass", "fields"});
  verb->add_option("--limit", options->limit,
                   "space: list at most so many candidates and rejections, 0 for all (default 20)");
  verb->add_option(
      "--launch", options->launch,
      "source, ptx, resources, sass: only the plan's launch of this number, from 1, so that the text is one "
      "file (default: all, one after the other)");
  verb->add_option("--output", options->folder,
                   "source: a folder to write a file for each launch to, in place of standard output");
  options->problem.add_to(*verb);
  options->device.add_target_to(*verb);
  options->config.add_config_to(*verb);
  options->algorithm.add_to(*verb);
  options->config.add_database_to(*verb);
  options->output.add_to(*verb);
  return {verb, [options] { return run(*options); }};
}

}  // namespace attune::cli
