// NVML tells the clock and why it is throttled. It is opened at run time; without it, samples say 0 MHz.
#include <dlfcn.h>

#include "generator/lazy_value.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/cuda/cuda_driver.h"

namespace attune {
namespace {

// The few declarations of nvml.h that are needed; its header is not part of a small CUDA installation.
using NvmlHandle = struct NvmlDevice*;
constexpr int kNvmlSuccess = 0;
constexpr int kNvmlClockSm = 1;
constexpr unsigned long long kSwPowerCap = 0x4, kHwSlowdown = 0x8, kSwThermal = 0x20, kHwThermal = 0x40,
                             kHwPowerBrake = 0x80;

struct Nvml {
  int (*init)() = nullptr;
  int (*handle_by_bus_id)(const char*, NvmlHandle*) = nullptr;
  int (*clock)(NvmlHandle, int, unsigned*) = nullptr;
  int (*throttle_reasons)(NvmlHandle, unsigned long long*) = nullptr;
  bool usable = false;

  Nvml() {
    void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    init = reinterpret_cast<decltype(init)>(dlsym(library, "nvmlInit_v2"));
    handle_by_bus_id = reinterpret_cast<decltype(handle_by_bus_id)>(dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2"));
    clock = reinterpret_cast<decltype(clock)>(dlsym(library, "nvmlDeviceGetClockInfo"));
    throttle_reasons =
        reinterpret_cast<decltype(throttle_reasons)>(dlsym(library, "nvmlDeviceGetCurrentClocksThrottleReasons"));
    usable = init != nullptr && handle_by_bus_id != nullptr && clock != nullptr && init() == kNvmlSuccess;
  }
};

std::string throttle_text(unsigned long long reasons) {
  if (reasons & (kSwThermal | kHwThermal)) return "thermal";
  if (reasons & (kHwSlowdown | kHwPowerBrake)) return "hardware slowdown";
  if (reasons & kSwPowerCap) return "power cap";
  return "";
}

}  // namespace

ClockSample sample_clock(int ordinal) {
  static constinit LazyValue<const Nvml> opened;
  const Nvml& nvml = opened.get();
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
  ClockSample sample;
  unsigned mhz = 0;
  if (nvml.clock(handle, kNvmlClockSm, &mhz) == kNvmlSuccess) sample.sm_mhz = static_cast<int>(mhz);
  unsigned long long reasons = 0;
  if (nvml.throttle_reasons != nullptr && nvml.throttle_reasons(handle, &reasons) == kNvmlSuccess) {
    sample.throttle = throttle_text(reasons);
  }
  return sample;
}

}  // namespace attune
