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

// What makes a model, where no GPU is there to be asked: a call takes SMs, shared memory and L2 from the driver.
// SMs, memory bandwidth and peak rates are meant as in NVIDIA's documents, which stand above each group; compared with
// what drivers report were the H100 and H200 boards, GH200, GB200, GB300 and B300, the other boards with nothing;
// clocks are the boost clock, of data-center GPUs since Hopper the highest that the driver reports, as is the L2. The
// mma rate is that of fp16 and bf16 products accumulated in fp32, per clock and SM, so that rate * SMs * boost clock
// gives the data sheet's dense figure: A10 125 TFLOP/s, L40S 362; GeForce boards and the L40 run fp32 accumulation at
// half rate (RTX 4090: 165). Of Hopper the mma rate is 5/8 of wgmma's: the share that the cost models count on.
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
    // "NVIDIA A100 Tensor Core GPU Architecture"; data sheets of A100 and A30.
    {"a100", "NVIDIA A100-SXM4-80GB", 8, 0, 108, 40, 1410, 2039, 2048},
    {"a100-40gb", "NVIDIA A100-SXM4-40GB", 8, 0, 108, 40, 1410, 1555, 2048},
    {"a100-pcie", "NVIDIA A100 80GB PCIe", 8, 0, 108, 40, 1410, 1935, 2048},
    {"a100-pcie-40gb", "NVIDIA A100-PCIE-40GB", 8, 0, 108, 40, 1410, 1555, 2048},
    {"a30", "NVIDIA A30", 8, 0, 56, 24, 1440, 933, 2048},
    // "NVIDIA Ampere GA102 GPU Architecture", version 2, whose appendices are of RTX 3080, 3090, A6000 and A40; data
    // sheets of A10 and RTX A5000; specifications of the RTX 3090 Ti at nvidia.com.
    {"a10", "NVIDIA A10", 8, 6, 72, 6, 1695, 600, 1024},
    {"a40", "NVIDIA A40", 8, 6, 84, 6, 1740, 696, 1024},
    {"a5000", "NVIDIA RTX A5000", 8, 6, 64, 6, 1695, 768, 1024},
    {"a6000", "NVIDIA RTX A6000", 8, 6, 84, 6, 1800, 768, 1024},
    {"rtx3080", "NVIDIA GeForce RTX 3080", 8, 6, 68, 5, 1710, 760, 512},
    {"rtx3090", "NVIDIA GeForce RTX 3090", 8, 6, 82, 6, 1695, 936, 512},
    {"rtx3090ti", "NVIDIA GeForce RTX 3090 Ti", 8, 6, 84, 6, 1860, 1008, 512},
    // "NVIDIA Ada GPU Architecture", version 2, whose appendices are of RTX 4080, 4090, 6000 Ada, L40 and L4; data
    // sheet of the L40S.
    {"l4", "NVIDIA L4", 8, 9, 58, 48, 2040, 300, 1024},
    {"l40", "NVIDIA L40", 8, 9, 142, 96, 2490, 864, 512},
    {"l40s", "NVIDIA L40S", 8, 9, 142, 96, 2520, 864, 1024},
    {"rtx4080", "NVIDIA GeForce RTX 4080", 8, 9, 76, 64, 2505, 717, 512},
    {"rtx4090", "NVIDIA GeForce RTX 4090", 8, 9, 128, 72, 2520, 1008, 512},
    {"rtx6000-ada", "NVIDIA RTX 6000 Ada Generation", 8, 9, 142, 96, 2505, 960, 1024},
    // "NVIDIA H100 Tensor Core GPU Architecture"; data sheets of H100, H200, GH200 and H20; product brief PB-11773 of
    // the H100 NVL. Boards with six stacks of memory report 60 MiB of L2. The H800 is an H100 but for NVLink and fp64
    // (FlashMLA's notes name its 3.35 TB/s and 990 TFLOP/s). Of the H20: 148 TFLOP/s by wgmma; the rest of its SM is
    // that of other Hopper boards.
    {"gh200", "NVIDIA GH200 480GB", 9, 0, 132, 60, 1980, 4000, 2560},
    {"gh200-120gb", "NVIDIA GH200 120GB", 9, 0, 132, 60, 1980, 4000, 2560},
    {"gh200-144gb", "NVIDIA GH200 144G HBM3e", 9, 0, 132, 60, 1980, 4900, 2560},
    {"h100", "NVIDIA H100 80GB HBM3", 9, 0, 132, 50, 1980, 3350, 2560},
    {"h100-nvl", "NVIDIA H100 NVL", 9, 0, 132, 60, 1785, 3938, 2560},
    {"h100-pcie", "NVIDIA H100 PCIe", 9, 0, 114, 50, 1755, 2039, 2560},
    {"h20", "NVIDIA H20", 9, 0, 78, 60, 1980, 4000, 599},
    {"h200", "NVIDIA H200", 9, 0, 132, 60, 1980, 4800, 2560},
    {"h200-nvl", "NVIDIA H200 NVL", 9, 0, 132, 60, 1785, 4800, 2560},
    {"h800", "NVIDIA H800", 9, 0, 132, 50, 1980, 3350, 2560},
    // "NVIDIA Blackwell Architecture Technical Brief"; data sheets of HGX B200, HGX B300, GB200 NVL72 and GB300 NVL72.
    {"b200", "NVIDIA B200", 10, 0, 148, 126, 1965, 8000, 2048},
    {"b300", "NVIDIA B300 SXM6 AC", 10, 3, 148, 126, 2032, 8000, 2048},
    {"gb200", "NVIDIA GB200", 10, 0, 152, 129, 2062, 8000, 2048},
    {"gb300", "NVIDIA GB300", 10, 3, 152, 129, 2070, 8000, 2048},
    // "NVIDIA RTX Blackwell GPU Architecture", whose appendices are of RTX 5090, 5080, 5070 Ti and 5070; "NVIDIA RTX
    // Blackwell PRO GPU Architecture". The clock of the Server Edition follows from its data sheet's 120 TFLOP/s.
    {"rtx-pro-6000", "NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 12, 0, 188, 128, 2617, 1792, 1024},
    {"rtx-pro-6000-server", "NVIDIA RTX PRO 6000 Blackwell Server Edition", 12, 0, 188, 128, 2493, 1597, 1024},
    {"rtx5070ti", "NVIDIA GeForce RTX 5070 Ti", 12, 0, 70, 48, 2452, 896, 512},
    {"rtx5080", "NVIDIA GeForce RTX 5080", 12, 0, 84, 64, 2617, 960, 512},
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
