#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace attune {

/// Schedulers of an SM; each issues the instructions of every fourth warp.
inline constexpr int kSchedulers = 4;

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
  double memory_gbps = 1555;  ///< device memory, 1e9 bytes per second
  bool has_tma = false;       ///< copies of tiles by tensor maps
  // Unit rates of an SM a clock. Products are of fp16 or bf16 with fp32 accumulation, dense.
  double mma_flops_per_clock = 2048;       ///< mma.sync, as the cost models count on it
  double mma_peak_flops_per_clock = 2048;  ///< mma.sync, which no stream of it exceeds
  double wgmma_flops_per_clock = 0;        ///< wgmma; 0 where there is none
  double peak_flops_per_clock = 2048;      ///< of the fastest instruction, whether or not kernels use it
  double exp2_per_clock = 16;              ///< ex2.approx.f32
  double alu_per_clock = 126;              ///< FFMA, FADD, FMUL
  double shared_bytes_per_clock = 128;
  double l2_bytes_per_clock = 48;  ///< while all SMs read

  friend bool operator==(const DeviceSpec&, const DeviceSpec&) = default;
};

/// Calls visit(name, field) for each field, in their order: what is written of a spec, and read.
template <typename Spec, typename Visit>
void visit_fields(Spec& spec, Visit visit) {
  visit("key", spec.key);
  visit("name", spec.name);
  visit("compute_major", spec.compute_major);
  visit("compute_minor", spec.compute_minor);
  visit("sm_count", spec.sm_count);
  visit("shared_bytes_per_block", spec.shared_bytes_per_block);
  visit("shared_bytes_per_sm", spec.shared_bytes_per_sm);
  visit("shared_bytes_reserved", spec.shared_bytes_reserved);
  visit("registers_per_sm", spec.registers_per_sm);
  visit("threads_per_sm", spec.threads_per_sm);
  visit("ctas_per_sm", spec.ctas_per_sm);
  visit("l2_bytes", spec.l2_bytes);
  visit("clock_mhz", spec.clock_mhz);
  visit("memory_gbps", spec.memory_gbps);
  visit("has_tma", spec.has_tma);
  visit("mma_flops_per_clock", spec.mma_flops_per_clock);
  visit("mma_peak_flops_per_clock", spec.mma_peak_flops_per_clock);
  visit("wgmma_flops_per_clock", spec.wgmma_flops_per_clock);
  visit("peak_flops_per_clock", spec.peak_flops_per_clock);
  visit("exp2_per_clock", spec.exp2_per_clock);
  visit("alu_per_clock", spec.alu_per_clock);
  visit("shared_bytes_per_clock", spec.shared_bytes_per_clock);
  visit("l2_bytes_per_clock", spec.l2_bytes_per_clock);
}

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
