#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace attune {

/// Plain facts about one GPU model, enough to generate for it and to rank configs without having it.
struct DeviceSpec {
  std::string key;   ///< short name for --target and file names: "h200", "rtx4090", "sm_80" for a generic one
  std::string name;  ///< as the driver reports it: "NVIDIA H200"
  int compute_major = 8;
  int compute_minor = 0;
  int sm_count = 108;
  int shared_bytes_per_block = 166912;  ///< opt-in maximum of one CTA
  int shared_bytes_per_sm = 167936;     ///< shared by the CTAs of one SM; each CTA also takes shared_bytes_reserved
  int shared_bytes_reserved = 1024;
  int registers_per_sm = 65536;
  int threads_per_sm = 2048;
  int ctas_per_sm = 32;
  std::int64_t l2_bytes = 40 << 20;
  int clock_mhz = 1410;
  double memory_gbps = 1555;          ///< device memory, 1e9 bytes per second
  double mma_flops_per_clock = 2048;  ///< fp16/bf16 mma.sync with fp32 accumulation, dense, per SM
  double exp2_per_clock = 16;         ///< ex2.approx.f32, per SM

  friend bool operator==(const DeviceSpec&, const DeviceSpec&) = default;
};

/// "sm_80", "sm_90a", "sm_120": the architecture that NVRTC compiles for. 9.x to 11.x name their architecture-specific
/// variant.
std::string arch_name(const DeviceSpec& device);

/// Device models whose facts are known here, ordered by key, and one generic entry per architecture.
const std::vector<DeviceSpec>& known_devices();

/// A known device by key ("h200", "sm_90a" or "sm_90", case-insensitive) or by the driver's name ("NVIDIA H200").
/// Throws Error(invalid_argument) that lists the known keys.
const DeviceSpec& find_device(std::string_view key_or_name);

/// The known device of the driver's name, if there is one.
std::optional<DeviceSpec> find_device_by_name(std::string_view name);

/// The generic device that stands for an unknown GPU of this compute capability (the nearest architecture at or below
/// it). Throws Error(unsupported) below 8.0.
DeviceSpec generic_device(int compute_major, int compute_minor);

}  // namespace attune
