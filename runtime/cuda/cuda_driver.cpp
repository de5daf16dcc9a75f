#include "runtime/cuda/cuda_driver.h"

#include <dlfcn.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string_view>

#include "generator/error.h"
#include "runtime/system/activity_mutex.h"
#include "runtime/system/state_mutex.h"

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
  resolve(library, "cuThreadExchangeStreamCaptureMode", f.cuThreadExchangeStreamCaptureMode, why_not);
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

constexpr const char* kForked =
    "this process was forked from one that had started CUDA, which does not work in such a child: start the child by "
    "exec (in Python by the methods \"spawn\" or \"forkserver\" of multiprocessing), or fork before the first call";

// Never freed: CUDA calls may come from destructors of static objects. A fork waits until the library is open, for a
// child could open none where a thread was opening one. It does not wait for the start, which may itself start
// programs: a child of a process in the middle of it is as one of a process that had started.
constinit StateMutex opening;
constinit ActivityMutex starting;
constinit std::atomic<LoadedDriver*> opened{nullptr}, started{nullptr};
constinit std::atomic<int> started_in{0};  // the generation of the process that began to start it, plus 1; 0: none did

// Opened without being started: asking the version must not wake a GPU.
LoadedDriver& opened_driver() {
  if (LoadedDriver* const driver = opened.load(std::memory_order_acquire)) return *driver;
  const std::lock_guard lock(opening);
  LoadedDriver* driver = opened.load(std::memory_order_relaxed);
  if (driver == nullptr) {
    auto made = std::make_unique<LoadedDriver>();
    open_library(*made);
    driver = made.release();
    opened.store(driver, std::memory_order_release);
  }
  return *driver;
}

bool is_forked() {
  const int begun = started_in.load(std::memory_order_relaxed);
  return begun != 0 && begun != fork_generation() + 1;
}

const LoadedDriver& started_driver() {
  if (const LoadedDriver* const driver = started.load(std::memory_order_acquire)) return *driver;
  LoadedDriver& driver = opened_driver();
  const ActivityMutex::Lock lock(starting);
  if (started.load(std::memory_order_relaxed) != nullptr || is_forked()) return driver;
  if (driver.opened) {
    started_in = fork_generation() + 1;
    const CUresult result = driver.functions.cuInit(0);
    driver.started = result == CUDA_SUCCESS;
    if (!driver.started) started_in = 0;
    if (result == CUDA_ERROR_NO_DEVICE) {
      driver.why_none =
          "the NVIDIA driver is installed but sees no GPU (CUDA_ERROR_NO_DEVICE); check CUDA_VISIBLE_DEVICES";
    } else if (result == CUDA_ERROR_NOT_INITIALIZED) {
      driver.why_none = "the NVIDIA driver does not start: " + driver.functions.describe(result, "cuInit") +
                        "; perhaps " + kForked;  // by another library
    } else if (!driver.started) {
      driver.why_none = "the NVIDIA driver does not start: " + driver.functions.describe(result, "cuInit");
    }
  }
  started.store(&driver, std::memory_order_release);
  return driver;
}

}  // namespace

const CudaDriver* CudaDriver::find(std::string* why_none) {
  const LoadedDriver& driver = started_driver();
  const bool forked = is_forked(), usable = driver.started && !forked;
  if (!usable && why_none != nullptr) *why_none = forked ? kForked : driver.why_none;
  return usable ? &driver.functions : nullptr;
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

RelaxedCapture::RelaxedCapture(const CudaDriver& driver) : driver_(driver) {
  exchanged_ = driver.cuThreadExchangeStreamCaptureMode != nullptr &&
               driver.cuThreadExchangeStreamCaptureMode(&before_) == CUDA_SUCCESS;
}

RelaxedCapture::~RelaxedCapture() {
  if (exchanged_) driver_.cuThreadExchangeStreamCaptureMode(&before_);
}

void require_unforked_cuda() {
  if (is_forked()) throw Error(ErrorCode::no_device, kForked);
}

std::string cuda_version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

int cuda_driver_version() {
  const LoadedDriver& driver = opened_driver();
  return driver.opened ? driver.functions.version : 0;
}

}  // namespace attune
