#include <fmt/core.h>

#include "generator/device/device_spec.h"
#include "generator/error.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/cuda/nvrtc_compiler.h"
#include "tuner/cli/exit_status.h"
#include "tuner/cli/output.h"
#include "tuner/cli/subprocess.h"
#include "tuner/cli/verb.h"

namespace attune::cli {
namespace {

struct DevicesOptions {
  OutputOptions output;
};

/// A fact that may be missing: the value, or why there is none.
struct Finding {
  std::string value, why_none;
};

template <typename Find>
Finding find_out(Find find) {
  try {
    return {find(), ""};
  } catch (const Error& error) {
    return {"", error.what()};
  }
}

Json finding_to_json(const Finding& finding) {
  if (finding.why_none.empty()) return finding.value;
  return {{"missing", finding.why_none}};
}

std::string to_text(const Finding& finding) {
  return finding.why_none.empty() ? finding.value : "none: " + finding.why_none;
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
  std::string why_none;
  const std::vector<CudaDeviceInfo> gpus = list_cuda_devices(&why_none);
  const Finding nvrtc = find_out([] { return nvrtc_identity(); });
  const Finding nvdisasm = find_out([] {
    const auto found = find_nvdisasm();
    return found ? found->string()
                 : throw Error(ErrorCode::unsupported, "not in PATH, $CUDA_HOME/bin or /usr/local/cuda/bin");
  });
  const Finding driver = find_out([&] {
    if (gpus.empty()) throw Error(ErrorCode::no_device, why_none);
    return open_cuda_device(gpus.front().ordinal)->toolchain().driver;
  });

  if (options.output.json) {
    Json document = {{"gpus", Json::array()},
                     {"driver", finding_to_json(driver)},
                     {"nvrtc", finding_to_json(nvrtc)},
                     {"nvdisasm", finding_to_json(nvdisasm)}};
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
  for (const CudaDeviceInfo& gpu : gpus) {
    print_field(fmt::format("cuda:{}", gpu.ordinal),
                fmt::format("{}, {}, {} SMs, {:.0f} GiB (target {})", gpu.spec.name, arch_name(gpu.spec),
                            gpu.spec.sm_count, static_cast<double>(gpu.memory_bytes) / (1 << 30), gpu.spec.key));
  }
  if (gpus.empty()) print_field("GPU", fmt::format("none: {}; --device emulator runs without one", why_none));
  print_field("driver", to_text(driver));
  print_field("NVRTC", to_text(nvrtc));
  print_field("nvdisasm", to_text(nvdisasm));
  print("targets\n");
  for (const DeviceSpec& spec : known_devices()) {
    print(fmt::format("  {:<12} {:<8} {:>4} SMs  {:>4} KiB shared  {}\n", spec.key, arch_name(spec), spec.sm_count,
                      spec.shared_bytes_per_block / 1024, spec.name));
  }
  return kOk;
}

}  // namespace

Verb make_devices(CommandLine& command) {
  auto options = std::make_shared<DevicesOptions>();
  CommandLine* verb =
      add_verb(command, "devices",
               "list the GPUs, driver and compiler of this machine, and the targets that kernels can be generated for",
               "attune devices --json");
  options->output.add_to(*verb);
  return {verb, [options] { return run(*options); }};
}

}  // namespace attune::cli
