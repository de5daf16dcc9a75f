#include "runtime/cuda/cuda_device_info.h"

#include <string>
#include <utility>
#include <vector>

#include "generator/error.h"
#include "runtime/cuda/cuda_device.h"

namespace attune {
namespace {

int attribute_of(const CudaDriver& driver, CUdevice device, CUdevice_attribute attribute) {
  int value = 0;
  driver.check(driver.cuDeviceGetAttribute(&value, attribute, device), "cuDeviceGetAttribute");
  return value;
}

}  // namespace

DeviceSpec spec_of(const CudaDriver& driver, CUdevice device) {
  const auto attribute = [&](CUdevice_attribute which) { return attribute_of(driver, device, which); };
  char name[256] = {};
  driver.check(driver.cuDeviceGetName(name, sizeof(name), device), "cuDeviceGetName");
  const int major = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  const int minor = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  const auto known = find_device_by_name(name);
  DeviceSpec spec = known ? *known : generic_device(major, minor);
  spec.name = name;
  spec.compute_major = major;
  spec.compute_minor = minor;
  spec.sm_count = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  spec.shared_bytes_per_block = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  spec.shared_bytes_per_sm = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
  spec.shared_bytes_reserved = attribute(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK);
  spec.registers_per_sm = attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
  spec.threads_per_sm = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
  spec.ctas_per_sm = attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
  spec.l2_bytes = attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  if (!known) {
    spec.clock_mhz = attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE) / 1000;
    // Two transfers per clock of the memory bus: kHz * bits / 8 * 2, in 1e9 bytes per second.
    spec.memory_gbps = attribute(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE) * 1e3 *
                       attribute(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH) / 8 * 2 / 1e9;
  }
  return spec;
}

std::vector<CudaDeviceInfo> list_cuda_devices(std::string* why_none) {
  std::vector<CudaDeviceInfo> devices;
  const CudaDriver* driver = CudaDriver::find(why_none);
  if (driver == nullptr) return devices;
  const RelaxedCapture relaxed(*driver);
  int count = 0;
  driver->check(driver->cuDeviceGetCount(&count), "cuDeviceGetCount");
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CUdevice device = 0;
    driver->check(driver->cuDeviceGet(&device, ordinal), "cuDeviceGet");
    CudaDeviceInfo info;
    info.ordinal = ordinal;
    info.spec = spec_of(*driver, device);
    driver->check(driver->cuDeviceTotalMem(&info.memory_bytes, device), "cuDeviceTotalMem");
    devices.push_back(std::move(info));
  }
  if (devices.empty() && why_none != nullptr) *why_none = "the NVIDIA driver sees no GPU; check CUDA_VISIBLE_DEVICES";
  return devices;
}

namespace {

// Whether a context is its device's primary one. Does not make that, where it is not in use.
bool is_primary(const CudaDriver& driver, CUdevice device, CUcontext context) {
  const RelaxedCapture relaxed(driver);
  unsigned flags = 0;
  int active = 0;
  driver.check(driver.cuDevicePrimaryCtxGetState(device, &flags, &active), "cuDevicePrimaryCtxGetState");
  if (active == 0) return false;
  CUcontext primary = nullptr;
  driver.check(driver.cuDevicePrimaryCtxRetain(&primary, device), "cuDevicePrimaryCtxRetain");
  driver.check(driver.cuDevicePrimaryCtxRelease(device), "cuDevicePrimaryCtxRelease");
  return primary == context;
}

}  // namespace

int current_cuda_ordinal() {
  const CudaDriver& driver = CudaDriver::get();
  CUcontext context = nullptr;
  CUdevice device = 0;
  driver.check(driver.cuCtxGetCurrent(&context), "cuCtxGetCurrent");
  if (context == nullptr) return 0;
  driver.check(driver.cuCtxGetDevice(&device), "cuCtxGetDevice");
  thread_local CUcontext known_primary = nullptr;  // of this thread's last call
  if (context != known_primary) {
    if (!is_primary(driver, device, context)) {
      throw Error(
          ErrorCode::invalid_argument,
          "the calling thread's current CUDA context is not the primary context of cuda:" + std::to_string(device) +
              ", in which Attune runs, as the CUDA runtime and PyTorch do: make that one current "
              "(cuDevicePrimaryCtxRetain, then cuCtxSetCurrent) and take tensors and stream from it; or, if "
              "they are of that one already, name the device (attune_problem::device in C, "
              "attune::runtime_of() in C++)");
    }
    known_primary = context;
  }
  return device;
}

}  // namespace attune
