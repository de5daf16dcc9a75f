#pragma once

#include <cuda.h>

#include <string>

namespace attune {

/// The line of a call, as a default argument finds it. std::source_location is missing where clang reads libstdc++ 12.
struct CallingLine {
  const char* file;
  int line;
  static constexpr CallingLine current(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

/// The CUDA driver's functions that Attune calls, found in libcuda.so.1 at run time so that a program starts without
/// it. Names are the driver's, without the suffix of their version.
struct CudaDriver {
  decltype(&::cuInit) cuInit;
  decltype(&::cuDriverGetVersion) cuDriverGetVersion;
  decltype(&::cuGetErrorName) cuGetErrorName;
  decltype(&::cuGetErrorString) cuGetErrorString;
  decltype(&::cuDeviceGet) cuDeviceGet;
  decltype(&::cuDeviceGetCount) cuDeviceGetCount;
  decltype(&::cuDeviceGetName) cuDeviceGetName;
  decltype(&::cuDeviceGetAttribute) cuDeviceGetAttribute;
  decltype(&::cuDeviceGetPCIBusId) cuDeviceGetPCIBusId;
  decltype(&::cuDeviceTotalMem) cuDeviceTotalMem;
  decltype(&::cuDevicePrimaryCtxRetain) cuDevicePrimaryCtxRetain;
  decltype(&::cuDevicePrimaryCtxRelease) cuDevicePrimaryCtxRelease;
  decltype(&::cuDevicePrimaryCtxGetState) cuDevicePrimaryCtxGetState;
  decltype(&::cuCtxGetCurrent) cuCtxGetCurrent;
  decltype(&::cuCtxPushCurrent) cuCtxPushCurrent;
  decltype(&::cuCtxPopCurrent) cuCtxPopCurrent;
  decltype(&::cuCtxGetDevice) cuCtxGetDevice;
  decltype(&::cuModuleLoadData) cuModuleLoadData;
  decltype(&::cuModuleUnload) cuModuleUnload;
  decltype(&::cuModuleGetFunction) cuModuleGetFunction;
  decltype(&::cuFuncSetAttribute) cuFuncSetAttribute;
  decltype(&::cuFuncGetAttribute) cuFuncGetAttribute;
  decltype(&::cuMemAlloc) cuMemAlloc;
  decltype(&::cuMemFree) cuMemFree;
  decltype(&::cuMemGetInfo) cuMemGetInfo;
  decltype(&::cuMemcpyHtoD) cuMemcpyHtoD;
  decltype(&::cuMemcpyDtoH) cuMemcpyDtoH;
  decltype(&::cuMemsetD8Async) cuMemsetD8Async;
  decltype(&::cuLaunchKernel) cuLaunchKernel;
  decltype(&::cuLaunchKernelEx) cuLaunchKernelEx;              ///< nullptr in a driver older than CUDA 11.8
  decltype(&::cuTensorMapEncodeTiled) cuTensorMapEncodeTiled;  ///< nullptr in a driver older than CUDA 12
  /// nullptr in a driver older than CUDA 10.1; see RelaxedCapture
  decltype(&::cuThreadExchangeStreamCaptureMode) cuThreadExchangeStreamCaptureMode;
  decltype(&::cuStreamSynchronize) cuStreamSynchronize;
  decltype(&::cuStreamIsCapturing) cuStreamIsCapturing;
  decltype(&::cuEventCreate) cuEventCreate;
  decltype(&::cuEventDestroy) cuEventDestroy;
  decltype(&::cuEventRecord) cuEventRecord;
  decltype(&::cuEventSynchronize) cuEventSynchronize;
  decltype(&::cuEventElapsedTime) cuEventElapsedTime;

  int version = 0;  ///< of CUDA that the driver supports: 1000 * major + 10 * minor

  /// The driver, initialised; nullptr, with the reason in *why_none, where there is none, it refuses to start, or this
  /// process was forked from one that had started it. Thread-safe.
  static const CudaDriver* find(std::string* why_none = nullptr);
  /// The same; throws Error(no_device) with the reason.
  static const CudaDriver& get();

  /// Throws Error(driver) with call, code, file and line unless result is CUDA_SUCCESS.
  void check(CUresult result, const char* call, const CallingLine& where = CallingLine::current()) const;
  /// The text of check()'s exception.
  std::string describe(CUresult result, const char* call, const CallingLine& where = CallingLine::current()) const;
};

/// While it lives, the calling thread may make driver calls that could wait for work of other streams, such as loading
/// a module, without ending a capture of another thread into a CUDA graph: a capture in the usual, global mode is
/// invalidated by such a call of any thread that has not said that it knows. Every call but launches and what belongs
/// to them is made so. A stream that is itself captured stays refused.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const CudaDriver& driver);
  ~RelaxedCapture();
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const CudaDriver& driver_;
  CUstreamCaptureMode before_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  bool exchanged_ = false;
};

/// Throws Error(no_device), with what to do, if this process was forked from one that had started CUDA, which does not
/// work in such a child. Quick.
void require_unforked_cuda();

/// "12.8" of 12080.
std::string cuda_version_text(int version);

/// The CUDA version that the installed driver supports, 1000 * major + 10 * minor; 0 where there is no driver. Starts
/// no GPU.
int cuda_driver_version();

}  // namespace attune
