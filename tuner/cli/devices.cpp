#include <fmt/core.h>

#include <algorithm>

#include "generator/device/device_spec.h"
#include "runtime/cuda/cuda_device.h"
#include "tuner/cli/exit_status.h"
#include "tuner/cli/output.h"
#include "tuner/cli/subprocess.h"
#include "tuner/cli/verb.h"
#include "tuner/database/machine_findings.h"

namespace attune::cli {
namespace {

struct DevicesOptions {
  OutputOptions output;
};

Json finding_to_json(const Finding& finding) {
  if (finding.why_none.empty()) return finding.value;
  return {{"missing", finding.why_none}};
}

Finding find_disassembler() {
  const auto found = find_nvdisasm();
  if (found) return {"nvdisasm", found->string(), ""};
  return {"nvdisasm", "", "not in PATH, $CUDA_HOME/bin or /usr/local/cuda/bin"};
}

Json spec_to_json(const DeviceSpec& spec) {
  return {{"target", spec.key},
          {"name", spec.name},
          {"arch", arch_name(spec)},
          {"sm_count", spec.sm_count},
          {"shared_bytes_per_block", spec.shared_bytes_per_block},
          {"l2_bytes", spec.l2_bytes},
          {"clock_mhz", spec.clock_mhz},
          {"memory_gbps", spec.memory_gbps}};
}

int run(const DevicesOptions& options) {
  std::vector<Finding> found = find_on_this_machine();
  found.push_back(find_disassembler());
  if (options.output.json) {
    std::string why_none;
    const std::vector<CudaDeviceInfo> gpus = list_cuda_devices(&why_none);
    Json document = {{"gpus", Json::array()}};
    for (const Finding& finding : found) {
      if (finding.name == "GPU" || finding.name.starts_with("cuda:")) continue;
      document[finding.name == "NVRTC" ? "nvrtc" : finding.name] = finding_to_json(finding);
    }
    if (gpus.empty()) document["no_gpu"] = why_none;
    for (const CudaDeviceInfo& gpu : gpus) {
      Json entry = {{"device", fmt::format("cuda:{}", gpu.ordinal)}, {"memory_bytes", gpu.memory_bytes}};
      entry.update(spec_to_json(gpu.spec));
      document["gpus"].push_back(std::move(entry));
    }
    document["targets"] = Json::array();
    for (const DeviceSpec& spec : known_devices()) document["targets"].push_back(spec_to_json(spec));
    print_json(document);
    return kOk;
  }
  for (const Finding& finding : found)
    print_field(finding.name, finding.text() + (finding.name == "GPU" ? "; --device emulator runs without one" : ""));
  print("targets\n");
  std::size_t width = 0;
  for (const DeviceSpec& spec : known_devices()) width = std::max(width, spec.key.size());
  for (const DeviceSpec& spec : known_devices()) {
    print(fmt::format("  {:<{}} {:<8} {:>4} SMs  {:>4} KiB shared  {}\n", spec.key, width, arch_name(spec),
                      spec.sm_count, spec.shared_bytes_per_block / 1024, spec.name));
  }
  return kOk;
}

}  // namespace

Verb make_devices(CommandLine& command) {
  auto options = std::make_shared<DevicesOptions>();
  CommandLine* verb = add_verb(command, "devices",
                               "list the GPUs, driver and compiler of this machine, the results and compiled kernels "
                               "that calls take, and the targets that kernels can be generated for",
                               "attune devices --json");
  options->output.add_to(*verb);
  return {verb, [options] { return run(*options); }};
}

}  // namespace attune::cli
