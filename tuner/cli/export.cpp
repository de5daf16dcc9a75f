#include <fmt/core.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "generator/error.h"
#include "generator/export/exported_plan.h"
#include "generator/generate.h"
#include "generator/problem/mask_geometry.h"
#include "runtime/cuda/nvrtc_compiler.h"
#include "runtime/system/printable.h"
#include "runtime/system/template_folder.h"
#include "tuner/cli/config_options.h"
#include "tuner/cli/device_options.h"
#include "tuner/cli/exit_status.h"
#include "tuner/cli/output.h"
#include "tuner/cli/plan_document.h"
#include "tuner/cli/problem_options.h"
#include "tuner/cli/verb.h"
#include "tuner/database/file_system.h"
#include "tuner/database/measurement.h"
#include "tuner/database/output_file.h"

namespace attune::cli {
namespace {

constexpr const char* kCubinFile = "kernel.cubin";

struct ExportVerbOptions {
  OutputOptions output;
  ProblemOptions problem;
  DeviceOptions device;
  ConfigOptions config;
  std::string folder, name;
  bool cubin = false, force = false;
};

/// Throws Error(invalid_argument) if the folder holds anything, unless that may be written over.
void require_folder(const std::filesystem::path& folder, bool force) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(folder, error);
  if (status.type() == std::filesystem::file_type::not_found) return;
  if (!error && !std::filesystem::is_directory(status))
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--output {} is there and is no folder", printable(folder.string())));
  const bool empty = !error && std::filesystem::is_empty(folder, error);
  if (error)
    throw Error(ErrorCode::io,
                fmt::format("folder {} cannot be read: {}", printable(folder.string()), error.message()));
  if (empty || force) return;
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("folder {} is not empty: name another one, or write over the files of an export in it with --force",
                  printable(folder.string())));
}

/// Throws Error(invalid_argument) if a file of the export would be written through a link: what that leads to is
/// somebody else's.
void require_no_links(const std::filesystem::path& folder, const std::vector<ExportedFile>& files) {
  for (const ExportedFile& file : files) {
    std::error_code error;
    const std::filesystem::path path = folder / file.name;
    if (std::filesystem::is_symlink(std::filesystem::symlink_status(path, error)))
      refuse(fmt::format("{} is a link, which --force does not write through: remove it", printable(path.string())));
  }
}

/// The kernels as NVRTC compiles the exported file.
std::string cubin_of(const std::vector<ExportedFile>& files, const KernelPlan& plan) {
  KernelLaunch all;
  all.arch = plan.launches.front().arch;
  all.entry = plan.launches.back().entry;
  for (const ExportedFile& file : files)
    if (file.name == "kernel.cu") all.source = file.text;
  return compile_with_nvrtc(all).image;
}

int run(const ExportVerbOptions& options) {
  const AttentionProblem problem = options.problem.problem();
  const ChosenDevice chosen = options.device.choose();
  if (!chosen.why.empty()) warn(fmt::format("no --target given: exporting for {}", chosen.spec.name));
  if (options.problem.names_mask() && !hides_pairs(problem.mask)) {
    warn(
        "the mask hides nothing at these lengths, so the exported kernel has none, whatever lengths it is called with; "
        "for a kernel with the mask export one of lengths at which it hides something");
  }
  const std::filesystem::path folder(options.folder);
  require_folder(folder, options.force);

  ConfigChoice choice =
      options.config.pick(problem, chosen.spec, options.config.open_tuned_configs(options.output).get());
  if (choice.config.copied_pairs) {
    warn("exported launchers copy no tensors of pairs: the config is exported without copied-pairs");
    choice.config.copied_pairs = false;
  }
  const KernelPlan plan = generate(problem, choice.config, chosen.spec, runtime_templates());
  ExportOptions named;
  named.name = options.name.empty() ? default_export_name(plan) : options.name;
  named.version = attune_version();
  if (options.cubin) named.compiler = nvrtc_identity();
  std::vector<ExportedFile> files = export_plan(plan, chosen.spec, named, runtime_templates());

  Json document = {{"problem", canonical_text(problem)},
                   {"target", chosen.spec.key},
                   {"config", canonical_text(choice.config)},
                   {"origin", to_string(choice.origin)}};
  if (!choice.detail.empty()) document["origin_detail"] = choice.detail;
  document["kernel_class"] = plan.kernel_class;
  Json launches = document;
  launches.update(plan_document(plan));
  for (std::size_t i = 0; i < plan.launches.size(); ++i)
    launches["launches"][i]["entry"] = exported_entry(plan.launches[i], named.name);
  files.push_back({"plan.json", json_text(launches, 2) + "\n"});
  if (options.cubin) files.push_back({kCubinFile, cubin_of(files, plan)});

  require_no_links(folder, files);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw Error(ErrorCode::io,
                fmt::format("folder {} cannot be made: {}", printable(folder.string()), error.message()));
  document["name"] = named.name;
  document["folder"] = folder.string();
  document["files"] = Json::array();
  for (const ExportedFile& file : files) {
    write_output_file(folder / file.name, file.text);
    document["files"].push_back(file.name);
  }
  // One of an earlier export would be of other kernels.
  if (!options.cubin && std::filesystem::remove(folder / kCubinFile, error))
    warn(fmt::format("{} of an earlier export was removed: it is not of these kernels; --cubin makes another",
                     printable((folder / kCubinFile).string())));

  if (options.output.json) {
    print_json(document);
    return kOk;
  }
  print_field("function", fmt::format("{}()", named.name));
  print_field("problem", canonical_text(problem));
  print_field("config", fmt::format("{} ({})", canonical_text(choice.config), describe_origin(choice)));
  print_field("target", fmt::format("{} ({})", chosen.spec.key, plan.launches.front().arch));
  for (const ExportedFile& file : files) print_field("wrote", (folder / file.name).string());
  print_field("to build", fmt::format("cd {} && nvcc -std=c++17 -O3 {} -o test kernel.cu launch.cpp test.cu && ./test",
                                      shell_word(folder.string()), nvcc_architecture_flags(plan)));
  return kOk;
}

}  // namespace

Verb make_export(CommandLine& command) {
  auto options = std::make_shared<ExportVerbOptions>();
  CommandLine* verb = add_verb(
      command, "export",
      "write the kernels of a problem with a C function that launches them, a test and a page that explains them: "
      "nvcc builds the folder, and nothing of Attune is needed any more. This needs no GPU",
      "attune export --target h200 --heads 16 --seq 4096 --head-dim 128 --causal --output attention\n"
      "attune export --target a100 --pass backward --seq 2048 --head-dim 64 --name my_backward --cubin --output "
      "backward");
  verb->add_option("--output", options->folder, "the folder to write; it must be new or empty").required();
  verb->add_option(
      "--name", options->name,
      "of the C function, and what all other names begin with, so that several exports link into one program "
      "(default: from the pass, dtype, head dim and mask)");
  verb->add_flag("--cubin", options->cubin, "also compile the kernels, by NVRTC, into kernel.cubin");
  verb->add_flag("--force", options->force,
                 "write into a folder that is not empty, over the files of an earlier export");
  options->problem.add_to(*verb);
  options->device.add_target_to(*verb);
  options->config.add_config_to(*verb);
  options->config.add_database_to(*verb);
  options->output.add_to(*verb);
  return {verb, [options] { return run(*options); }};
}

}  // namespace attune::cli
