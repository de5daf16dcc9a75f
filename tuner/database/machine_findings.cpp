#include "tuner/database/machine_findings.h"

#include <fmt/core.h>

#include <cstdint>
#include <filesystem>
#include <set>
#include <string_view>
#include <utility>

#include "generator/device/device_spec.h"
#include "generator/error.h"
#include "runtime/cuda/cubin_cache.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/cuda/nvrtc_compiler.h"
#include "tuner/database/system_database.h"
#include "tuner/database/tuning_database.h"

namespace attune {
namespace {

template <typename Find>
Finding finding(std::string_view name, const Find& find) {
  try {
    return {std::string(name), find(), ""};
  } catch (const Error& error) {
    return {std::string(name), "", error.what()};
  }
}

std::string text_of(const CudaDeviceInfo& gpu) {
  return fmt::format("{}, {}, {} SMs, {:.0f} GiB (target {})", gpu.spec.name, arch_name(gpu.spec), gpu.spec.sm_count,
                     static_cast<double>(gpu.memory_bytes) / (1 << 30), gpu.spec.key);
}

// "736 results on 2 GPUs", and what there is to say about them.
std::string results_of(const TuningDatabase& database) {
  std::int64_t rows = 0;
  std::set<std::string> devices;
  for (const TuningDatabase::Entry& entry : database.list()) {
    rows += entry.rows;
    devices.insert(entry.device);
  }
  std::string text = fmt::format("{} result{}", rows, rows == 1 ? "" : "s");
  if (!devices.empty()) text += fmt::format(" on {} model{} of GPU", devices.size(), devices.size() == 1 ? "" : "s");
  for (const std::string& note : database.notes()) text += "; " + note;
  return text;
}

std::string shipped_results() {
  const DatabaseLayers layers = open_system_databases();
  if (layers.empty()) throw Error(ErrorCode::database, std::string(presets_switched_off()));
  std::string text;
  for (const auto& database : layers) {
    text += (text.empty() ? "" : "; ") + results_of(*database);
    const DatabaseLabel& label = database->label();
    if (label.name == kPresetsName) {
      if (layers.size() > 1) text += ", of the presets";
      continue;
    }
    text += ", of " + (label.empty() ? "" : to_text(label) + " in ") + database->path().string();
  }
  return text;
}

std::string own_results() {
  const std::filesystem::path path = TuningDatabase::default_path();
  if (path.empty())
    throw Error(ErrorCode::database, "set HOME, XDG_DATA_HOME or ATTUNE_DATABASE to have a place for it");
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored))
    throw Error(ErrorCode::database, path.string() + " does not exist; `attune tune` begins it");
  return fmt::format("{}, {}", path.string(), results_of(*TuningDatabase::open_for_reading(path)));
}

}  // namespace

std::vector<Finding> find_on_this_machine() {
  std::string why_none;
  const std::vector<CudaDeviceInfo> gpus = list_cuda_devices(&why_none);
  std::vector<Finding> found;
  for (const CudaDeviceInfo& gpu : gpus) found.push_back({fmt::format("cuda:{}", gpu.ordinal), text_of(gpu), ""});
  if (gpus.empty()) found.push_back({"GPU", "", why_none});
  found.push_back(finding("driver", [&] {
    if (gpus.empty()) throw Error(ErrorCode::no_device, why_none);
    return open_cuda_device(gpus.front().ordinal)->toolchain().driver;
  }));
  found.push_back(finding("NVRTC", [] { return nvrtc_identity(); }));
  found.push_back(finding("presets", shipped_results));
  found.push_back(finding("database", own_results));
  found.push_back(finding("cache", [] { return CubinCache::default_folder().string(); }));
  return found;
}

}  // namespace attune
