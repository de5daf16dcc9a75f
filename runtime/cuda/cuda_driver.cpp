#include "runtime/cuda/cuda_driver.h"

#include <dlfcn.h>

#include <string_view>

#include "generator/error.h"

namespace attune {
namespace {

struct LoadedDriver {
  CudaDriver functions{};
  bool opened = false;   // libcuda.so.1 is there and complete; its version is known
  bool started = false;  // cuInit succeeded
  std::string why_none;
};

template <typename Function>
bool resolve(void* library, const char* symbol, Function& function, std::string& why) {
  function = reinterpret_cast<Function>(dlsym(library, symbol));
  if (function == nullptr) {
    // Not a sum of temporaries: GCC 12 warns of bounds in std::string's own operator + here.
    why = "the NVIDIA driver's libcuda.so.1 has no ";
    why.append(symbol).append(": it is too old, update it");
  }
  return function != nullptr;
}

// Symbols carry the version of the call, which cuda.h hides behind macros that differ between toolkits.
bool resolve_all(void* library, CudaDriver& f, std::string& why) {
  return resolve(library, "cuInit", f.cuInit, why) &&
         resolve(library, "cuDriverGetVersion", f.cuDriverGetVersion, why) &&
         resolve(library, "cuGetErrorName", f.cuGetErrorName, why) &&
         resolve(library, "cuGetErrorString", f.cuGetErrorString, why) &&
         resolve(library, "cuDeviceGet", f.cuDeviceGet, why) &&
         resolve(library, "cuDeviceGetCount", f.cuDeviceGetCount, why) &&
         resolve(library, "cuDeviceGetName", f.cuDeviceGetName, why) &&
         resolve(library, "cuDeviceGetAttribute", f.cuDeviceGetAttribute, why) &&
         resolve(library, "cuDeviceGetPCIBusId", f.cuDeviceGetPCIBusId, why) &&
         resolve(library, "cuDeviceTotalMem_v2", f.cuDeviceTotalMem, why) &&
         resolve(library, "cuDevicePrimaryCtxRetain", f.cuDevicePrimaryCtxRetain, why) &&
         resolve(library, "cuDevicePrimaryCtxRelease_v2", f.cuDevicePrimaryCtxRelease, why) &&
         resolve(library, "cuDevicePrimaryCtxGetState", f.cuDevicePrimaryCtxGetState, why) &&
         resolve(library, "cuCtxGetCurrent", f.cuCtxGetCurrent, why) &&
         resolve(library, "cuCtxPushCurrent_v2", f.cuCtxPushCurrent, why) &&
         resolve(library, "cuCtxPopCurrent_v2", f.cuCtxPopCurrent, why) &&
         resolve(library, "cuCtxGetDevice", f.cuCtxGetDevice, why) &&
         resolve(library, "cuModuleLoadData", f.cuModuleLoadData, why) &&
         resolve(library, "cuModuleUnload", f.cuModuleUnload, why) &&
         resolve(library, "cuModuleGetFunction", f.cuModuleGetFunction, why) &&
         resolve(library, "cuFuncSetAttribute", f.cuFuncSetAttribute, why) &&
         resolve(library, "cuFuncGetAttribute", f.cuFuncGetAttribute, why) &&
         resolve(library, "cuMemAlloc_v2", f.cuMemAlloc, why) && resolve(library, "cuMemFree_v2", f.cuMemFree, why) &&
         resolve(library, "cuMemGetInfo_v2", f.cuMemGetInfo, why) &&
         resolve(library, "cuMemcpyHtoD_v2", f.cuMemcpyHtoD, why) &&
         resolve(library, "cuMemcpyDtoH_v2", f.cuMemcpyDtoH, why) &&
         resolve(library, "cuMemsetD8Async", f.cuMemsetD8Async, why) &&
         resolve(library, "cuLaunchKernel", f.cuLaunchKernel, why) &&
         resolve(library, "cuStreamSynchronize", f.cuStreamSynchronize, why) &&
         resolve(library, "cuStreamIsCapturing", f.cuStreamIsCapturing, why) &&
         resolve(library, "cuEventCreate", f.cuEventCreate, why) &&
         resolve(library, "cuEventDestroy_v2", f.cuEventDestroy, why) &&
         resolve(library, "cuEventRecord", f.cuEventRecord, why) &&
         resolve(library, "cuEventSynchronize", f.cuEventSynchronize, why) &&
         resolve(library, "cuEventElapsedTime", f.cuEventElapsedTime, why);
}

// What only GPUs need that came later.
void resolve_newer(void* library, CudaDriver& f) {
  std::string why_not;
  resolve(library, "cuLaunchKernelEx", f.cuLaunchKernelEx, why_not);
  resolve(library, "cuTensorMapEncodeTiled", f.cuTensorMapEncodeTiled, why_not);
}

void open_library(LoadedDriver& driver) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    driver.why_none =
        "no NVIDIA driver: libcuda.so.1 cannot be opened; install the driver of your GPU, or use the emulator";
    return;
  }
  if (!resolve_all(library, driver.functions, driver.why_none)) return;
  resolve_newer(library, driver.functions);
  if (driver.functions.cuDriverGetVersion(&driver.functions.version) != CUDA_SUCCESS) {
    driver.why_none =
        "the NVIDIA driver does not tell its version (a stub of libcuda.so.1?); install the driver of your GPU";
    return;
  }
  driver.opened = true;
}

// Opened without being started: asking the version must not wake a GPU.
LoadedDriver& opened_driver() {
  static LoadedDriver* const driver = [] {
    auto* made = new LoadedDriver;  // never freed: CUDA calls may come from destructors of static objects
    open_library(*made);
    return made;
  }();
  return *driver;
}

const LoadedDriver& started_driver() {
  static const LoadedDriver* const driver = [] {
    LoadedDriver& opened = opened_driver();
    if (!opened.opened) return &opened;
    const CUresult result = opened.functions.cuInit(0);
    opened.started = result == CUDA_SUCCESS;
    if (result == CUDA_ERROR_NO_DEVICE) {
      opened.why_none =
          "the NVIDIA driver is installed but sees no GPU (CUDA_ERROR_NO_DEVICE); check CUDA_VISIBLE_DEVICES";
    } else if (!opened.started) {
      opened.why_none = "the NVIDIA driver does not start: " + opened.functions.describe(result, "cuInit");
    }
    return &opened;
  }();
  return *driver;
}

}  // namespace

const CudaDriver* CudaDriver::find(std::string* why_none) {
  const LoadedDriver& driver = started_driver();
  if (!driver.started && why_none != nullptr) *why_none = driver.why_none;
  return driver.started ? &driver.functions : nullptr;
}

const CudaDriver& CudaDriver::get() {
  std::string why_none;
  const CudaDriver* driver = find(&why_none);
  if (driver == nullptr) throw Error(ErrorCode::no_device, why_none);
  return *driver;
}

std::string CudaDriver::describe(CUresult result, const char* call, const CallingLine& where) const {
  const char* name = nullptr;
  const char* sentence = nullptr;
  if (cuGetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr) name = "unknown CUDA error";
  if (cuGetErrorString(result, &sentence) != CUDA_SUCCESS || sentence == nullptr) sentence = "no description";
  const std::string_view path = where.file;
  const std::size_t room = path.rfind("runtime/");
  return std::string(call) + " failed: " + name + " (" + std::to_string(static_cast<int>(result)) + ", " + sentence +
         ") at " + std::string(path.substr(room == std::string_view::npos ? 0 : room)) + ":" +
         std::to_string(where.line);
}

void CudaDriver::check(CUresult result, const char* call, const CallingLine& where) const {
  if (result != CUDA_SUCCESS) throw Error(ErrorCode::driver, describe(result, call, where));
}

std::string cuda_version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

int cuda_driver_version() {
  const LoadedDriver& driver = opened_driver();
  return driver.opened ? driver.functions.version : 0;
}

}  // namespace attune
