#include "generator/device/device_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "generator/error.h"
#include "generator/lazy_value.h"

namespace attune {
namespace {
constexpr std::int64_t kMiB = std::int64_t{1} << 20;

// What all GPUs of an architecture share (CUDA C++ Programming Guide, "Technical Specifications per Compute
// Capability").
struct Architecture {
  int major, minor;
  int shared_kib_per_sm;  // one CTA may have all of it but the reserved KiB
  int threads_per_sm;
  int ctas_per_sm;
  double exp2_per_clock;
  double alu_per_clock;     // of 64 or 128 lanes, less what an H200 was seen to lose
  double wgmma_over_mma;    // 0: no wgmma
  double fastest_over_mma;  // wgmma's 8/5 (white paper of Hopper: 989 TFLOP/s at 1830 MHz), tcgen05's about 4
};
constexpr Architecture kArchitectures[] = {
    {8, 0, 164, 2048, 32, 16, 63, 0, 1},      {8, 6, 100, 1536, 16, 16, 126, 0, 1},
    {8, 7, 164, 1536, 16, 16, 126, 0, 1},     {8, 9, 100, 1536, 24, 16, 126, 0, 1},
    {9, 0, 228, 2048, 32, 16, 126, 1.6, 1.6}, {10, 0, 228, 2048, 32, 16, 126, 0, 4},
    {10, 3, 228, 2048, 32, 32, 126, 0, 4},    {11, 0, 228, 1536, 24, 16, 126, 0, 4},
    {12, 0, 100, 1536, 24, 16, 126, 0, 1},    {12, 1, 100, 1536, 24, 16, 126, 0, 1},
};

// What makes a model: data sheets and white papers of NVIDIA. The mma rate is that of fp16 and bf16 products
// accumulated in fp32, per clock and SM, so that rate * SMs * boost clock gives the data sheet's dense figure: A10 125
// TFLOP/s, L40S 362; GeForce boards run fp32 accumulation at half rate (RTX 4090: 165). Of Hopper the mma rate is
// 5/8 of wgmma's: the share that the cost models count on.
struct Model {
  const char* key;
  const char* name;
  int major, minor;
  int sm_count;
  std::int64_t l2_mib;
  int clock_mhz;
  double memory_gbps;
  double mma_flops_per_clock;
};
constexpr Model kModels[] = {
    {"a10", "NVIDIA A10", 8, 6, 72, 6, 1695, 600, 1024},
    {"a100", "NVIDIA A100-SXM4-80GB", 8, 0, 108, 40, 1410, 2039, 2048},
    {"a100-40gb", "NVIDIA A100-SXM4-40GB", 8, 0, 108, 40, 1410, 1555, 2048},
    {"a100-pcie", "NVIDIA A100 80GB PCIe", 8, 0, 108, 40, 1410, 1935, 2048},
    {"a30", "NVIDIA A30", 8, 0, 56, 24, 1440, 933, 2048},
    {"b200", "NVIDIA B200", 10, 0, 148, 126, 1965, 8000, 2048},
    // 148 TFLOP/s by wgmma; the rest of its SM is that of other Hopper boards.
    {"h20", "NVIDIA H20", 9, 0, 78, 60, 1980, 4000, 599},
    {"h100", "NVIDIA H100 80GB HBM3", 9, 0, 132, 50, 1980, 3350, 2560},
    {"h100-pcie", "NVIDIA H100 PCIe", 9, 0, 114, 50, 1755, 2039, 2560},
    {"h200", "NVIDIA H200", 9, 0, 132, 60, 1980, 4800, 2560},
    {"l4", "NVIDIA L4", 8, 9, 58, 48, 2040, 300, 1024},
    {"l40s", "NVIDIA L40S", 8, 9, 142, 96, 2520, 864, 1024},
    {"rtx3090", "NVIDIA GeForce RTX 3090", 8, 6, 82, 6, 1695, 936, 512},
    {"rtx4090", "NVIDIA GeForce RTX 4090", 8, 9, 128, 72, 2520, 1008, 512},
    {"rtx5090", "NVIDIA GeForce RTX 5090", 12, 0, 170, 96, 2407, 1792, 512},
    // One typical model for each architecture stands for the unknown ones.
    {"sm_80", "generic sm_80", 8, 0, 108, 40, 1410, 1555, 2048},
    {"sm_86", "generic sm_86", 8, 6, 82, 6, 1695, 936, 512},
    {"sm_87", "generic sm_87", 8, 7, 16, 4, 1300, 204, 2048},
    {"sm_89", "generic sm_89", 8, 9, 128, 72, 2520, 1008, 512},
    {"sm_90a", "generic sm_90a", 9, 0, 132, 50, 1980, 3350, 2560},
    {"sm_100a", "generic sm_100a", 10, 0, 148, 126, 1965, 8000, 2048},
    {"sm_103a", "generic sm_103a", 10, 3, 148, 126, 1965, 8000, 2048},
    {"sm_110a", "generic sm_110a", 11, 0, 20, 32, 1575, 273, 2048},
    {"sm_120", "generic sm_120", 12, 0, 170, 96, 2407, 1792, 512},
    {"sm_121", "generic sm_121", 12, 1, 48, 24, 2418, 273, 512},
};

const Architecture& architecture_of(const Model& model) {
  return *std::find_if(std::begin(kArchitectures), std::end(kArchitectures),
                       [&](const Architecture& a) { return a.major == model.major && a.minor == model.minor; });
}

DeviceSpec spec_of(const Model& model) {
  const Architecture& architecture = architecture_of(model);
  DeviceSpec spec;
  spec.key = model.key;
  spec.name = model.name;
  spec.compute_major = model.major;
  spec.compute_minor = model.minor;
  spec.sm_count = model.sm_count;
  spec.shared_bytes_per_sm = architecture.shared_kib_per_sm * 1024;
  spec.shared_bytes_per_block = spec.shared_bytes_per_sm - spec.shared_bytes_reserved;
  spec.threads_per_sm = architecture.threads_per_sm;
  spec.ctas_per_sm = architecture.ctas_per_sm;
  spec.l2_bytes = model.l2_mib * kMiB;
  spec.clock_mhz = model.clock_mhz;
  spec.memory_gbps = model.memory_gbps;
  // mma.sync reaches two thirds of wgmma's rate (measured on an H200: 2729.5 with 8 warps, 2608 with 4).
  spec.mma_flops_per_clock = model.mma_flops_per_clock;
  spec.wgmma_flops_per_clock = architecture.wgmma_over_mma * model.mma_flops_per_clock;
  spec.mma_peak_flops_per_clock =
      spec.wgmma_flops_per_clock > 0 ? spec.wgmma_flops_per_clock * 2 / 3 : spec.mma_flops_per_clock;
  spec.peak_flops_per_clock = architecture.fastest_over_mma * model.mma_flops_per_clock;
  spec.has_tma = model.major >= 9;
  spec.exp2_per_clock = architecture.exp2_per_clock;
  spec.alu_per_clock = architecture.alu_per_clock;
  return spec;
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), [](unsigned char c) { return std::tolower(c); });
  return result;
}

// "sm_90" and "sm_120a" are understood as the entries "sm_90a" and "sm_120".
std::string other_spelling(const std::string& key) {
  if (!key.starts_with("sm_")) return key;
  return key.ends_with('a') ? key.substr(0, key.size() - 1) : key + "a";
}

bool is_generic(const DeviceSpec& device) { return device.key.starts_with("sm_"); }
}  // namespace

std::string arch_name(const DeviceSpec& device) {
  const bool specific = device.compute_major >= 9 && device.compute_major <= 11;
  return fmt::format("sm_{}{}{}", device.compute_major, device.compute_minor, specific ? "a" : "");
}

const std::vector<DeviceSpec>& known_devices() {
  static constinit LazyValue<const std::vector<DeviceSpec>> devices;
  return devices.get([] {
    std::vector<DeviceSpec> list;
    for (const Model& model : kModels) list.push_back(spec_of(model));
    std::sort(list.begin(), list.end(), [](const DeviceSpec& a, const DeviceSpec& b) { return a.key < b.key; });
    return list;
  });
}

const DeviceSpec& find_device(std::string_view key_or_name) {
  const std::string wanted = lower(key_or_name);
  const std::string other = other_spelling(wanted);
  for (const DeviceSpec& device : known_devices()) {
    if (device.key == wanted || device.key == other || lower(device.name) == wanted) return device;
  }
  std::string keys;
  for (const DeviceSpec& device : known_devices()) keys += (keys.empty() ? "" : ", ") + device.key;
  throw Error(ErrorCode::invalid_argument, fmt::format("unknown target '{}'; known targets: {}", key_or_name, keys));
}

std::optional<DeviceSpec> find_device_by_name(std::string_view name) {
  for (const DeviceSpec& device : known_devices()) {
    if (device.name == name) return device;
  }
  return std::nullopt;
}

DeviceSpec generic_device(int compute_major, int compute_minor) {
  const DeviceSpec* nearest = nullptr;
  const auto rank = [](int major, int minor) { return major * 100 + minor; };
  for (const DeviceSpec& device : known_devices()) {
    if (!is_generic(device) || rank(device.compute_major, device.compute_minor) > rank(compute_major, compute_minor))
      continue;
    if (nearest == nullptr ||
        rank(device.compute_major, device.compute_minor) > rank(nearest->compute_major, nearest->compute_minor)) {
      nearest = &device;
    }
  }
  if (nearest == nullptr) {
    throw Error(ErrorCode::unsupported, fmt::format("compute capability {}.{}: kernels need 8.0 (Ampere) or newer",
                                                    compute_major, compute_minor));
  }
  return *nearest;
}

}  // namespace attune
