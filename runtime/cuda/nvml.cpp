// NVML tells the clock and why it is throttled. It is opened at run time; without it, samples say 0 MHz.
#include <dlfcn.h>
#include <unistd.h>

#include <optional>

#include "generator/lazy_value.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/cuda/cuda_driver.h"

namespace attune {
namespace {

// The few declarations of nvml.h that are needed; its header is not part of a small CUDA installation.
using NvmlHandle = struct NvmlDevice*;
constexpr int kNvmlSuccess = 0;
constexpr int kNvmlClockSm = 1, kNvmlClockMemory = 2;
constexpr unsigned kTextBytes = 96;  // NVML's texts are no longer
constexpr unsigned long long kSwPowerCap = 0x4, kHwSlowdown = 0x8, kSwThermal = 0x20, kHwThermal = 0x40,
                             kHwPowerBrake = 0x80;

struct Nvml {
  int (*init)() = nullptr;
  int (*handle_by_bus_id)(const char*, NvmlHandle*) = nullptr;
  int (*clock)(NvmlHandle, int, unsigned*) = nullptr;
  int (*throttle_reasons)(NvmlHandle, unsigned long long*) = nullptr;
  int (*uuid)(NvmlHandle, char*, unsigned) = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*power_limit)(NvmlHandle, unsigned*) = nullptr;  // milliwatts
  int (*applications_clock)(NvmlHandle, int, unsigned*) = nullptr;
  int (*max_clock)(NvmlHandle, int, unsigned*) = nullptr;
  bool usable = false;

  Nvml() {
    void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    init = reinterpret_cast<decltype(init)>(dlsym(library, "nvmlInit_v2"));
    handle_by_bus_id = reinterpret_cast<decltype(handle_by_bus_id)>(dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2"));
    clock = reinterpret_cast<decltype(clock)>(dlsym(library, "nvmlDeviceGetClockInfo"));
    throttle_reasons =
        reinterpret_cast<decltype(throttle_reasons)>(dlsym(library, "nvmlDeviceGetCurrentClocksThrottleReasons"));
    uuid = reinterpret_cast<decltype(uuid)>(dlsym(library, "nvmlDeviceGetUUID"));
    driver_version = reinterpret_cast<decltype(driver_version)>(dlsym(library, "nvmlSystemGetDriverVersion"));
    power_limit = reinterpret_cast<decltype(power_limit)>(dlsym(library, "nvmlDeviceGetEnforcedPowerLimit"));
    applications_clock =
        reinterpret_cast<decltype(applications_clock)>(dlsym(library, "nvmlDeviceGetApplicationsClock"));
    max_clock = reinterpret_cast<decltype(max_clock)>(dlsym(library, "nvmlDeviceGetMaxClockInfo"));
    usable = init != nullptr && handle_by_bus_id != nullptr && clock != nullptr && init() == kNvmlSuccess;
  }
};

std::string throttle_text(unsigned long long reasons) {
  if (reasons & (kSwThermal | kHwThermal)) return "thermal";
  if (reasons & (kHwSlowdown | kHwPowerBrake)) return "hardware slowdown";
  if (reasons & kSwPowerCap) return "power cap";
  return "";
}

const Nvml& opened_nvml() {
  static constinit LazyValue<const Nvml> opened;
  return opened.get();
}

// None without NVML.
std::optional<NvmlHandle> handle_of(int ordinal) {
  const Nvml& nvml = opened_nvml();
  const CudaDriver* driver = CudaDriver::find();
  if (!nvml.usable || driver == nullptr) return {};
  // CUDA's ordinals follow CUDA_VISIBLE_DEVICES, NVML's do not: the bus id is common to both.
  CUdevice device = 0;
  char bus_id[32] = {};
  NvmlHandle handle = nullptr;
  if (driver->cuDeviceGet(&device, ordinal) != CUDA_SUCCESS ||
      driver->cuDeviceGetPCIBusId(bus_id, sizeof(bus_id), device) != CUDA_SUCCESS ||
      nvml.handle_by_bus_id(bus_id, &handle) != kNvmlSuccess) {
    return {};
  }
  return handle;
}

// What applications run at: not every GPU knows a clock of applications.
int clock_limit_mhz(const Nvml& nvml, NvmlHandle handle, int clock) {
  unsigned mhz = 0;
  for (const auto ask : {nvml.applications_clock, nvml.max_clock})
    if (ask != nullptr && ask(handle, clock, &mhz) == kNvmlSuccess && mhz > 0) return static_cast<int>(mhz);
  return 0;
}

}  // namespace

NodeGpu find_node_gpu(int ordinal) {
  NodeGpu gpu;
  char text[256] = {};
  if (::gethostname(text, sizeof(text) - 1) == 0) gpu.host = text;
  const std::optional<NvmlHandle> handle = handle_of(ordinal);
  if (!handle) return gpu;
  const Nvml& nvml = opened_nvml();
  if (nvml.uuid != nullptr && nvml.uuid(*handle, text, kTextBytes) == kNvmlSuccess) gpu.gpu_uuid = text;
  if (nvml.driver_version != nullptr && nvml.driver_version(text, kTextBytes) == kNvmlSuccess) gpu.driver_build = text;
  unsigned milliwatts = 0;
  if (nvml.power_limit != nullptr && nvml.power_limit(*handle, &milliwatts) == kNvmlSuccess)
    gpu.power_limit_w = static_cast<int>(milliwatts / 1000);
  gpu.sm_clock_limit_mhz = clock_limit_mhz(nvml, *handle, kNvmlClockSm);
  gpu.memory_clock_mhz = clock_limit_mhz(nvml, *handle, kNvmlClockMemory);
  return gpu;
}

ClockSample sample_clock(int ordinal) {
  const std::optional<NvmlHandle> handle = handle_of(ordinal);
  if (!handle) return {};
  const Nvml& nvml = opened_nvml();
  ClockSample sample;
  unsigned mhz = 0;
  if (nvml.clock(*handle, kNvmlClockSm, &mhz) == kNvmlSuccess) sample.sm_mhz = static_cast<int>(mhz);
  unsigned long long reasons = 0;
  if (nvml.throttle_reasons != nullptr && nvml.throttle_reasons(*handle, &reasons) == kNvmlSuccess) {
    sample.throttle = throttle_text(reasons);
  }
  return sample;
}

}  // namespace attune
