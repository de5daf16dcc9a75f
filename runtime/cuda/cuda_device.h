#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/device.h"

namespace attune {

/// One visible GPU.
struct CudaDeviceInfo {
  int ordinal = 0;
  DeviceSpec spec;
  std::size_t memory_bytes = 0;
};

/// All visible GPUs; empty, with the reason in *why_none, where there is no driver or no GPU. Never throws for a
/// missing GPU.
std::vector<CudaDeviceInfo> list_cuda_devices(std::string* why_none = nullptr);

/// The GPU's primary context. Throws Error(no_device) that says what is missing. One object per ordinal is shared by
/// the process.
std::shared_ptr<Device> open_cuda_device(int ordinal);

/// The device of the calling thread's current context (ordinal 0 if there is none), by its primary context: the one
/// that the CUDA runtime and PyTorch use. Throws Error(invalid_argument) that says what to do if the current context is
/// another one: what belongs to it cannot be used in the primary one.
std::shared_ptr<Device> current_cuda_device();

/// The ordinal of that device; quick. Throws the same, and Error(no_device).
int current_cuda_ordinal();

/// Kernel times on the GPU by events, in one stream. Only for a device of open_cuda_device.
class CudaTimer {
 public:
  CudaTimer(const std::shared_ptr<Device>& device, Stream stream);
  ~CudaTimer();
  void start();
  void stop();
  double microseconds();  ///< waits for stop()'s event

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The SM clock now, in MHz, and why it is throttled ("", "power cap", "thermal", "hardware slowdown"), by NVML; 0
/// where NVML is missing.
struct ClockSample {
  int sm_mhz = 0;
  std::string throttle;
};
ClockSample sample_clock(int ordinal);

/// Which GPU of which node this is and how it is set, by NVML. Without NVML the host alone.
NodeGpu find_node_gpu(int ordinal);

}  // namespace attune
