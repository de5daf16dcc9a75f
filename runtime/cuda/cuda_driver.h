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
  decltype(&::cuStreamSynchronize) cuStreamSynchronize;
  decltype(&::cuStreamIsCapturing) cuStreamIsCapturing;
  decltype(&::cuEventCreate) cuEventCreate;
  decltype(&::cuEventDestroy) cuEventDestroy;
  decltype(&::cuEventRecord) cuEventRecord;
  decltype(&::cuEventSynchronize) cuEventSynchronize;
  decltype(&::cuEventElapsedTime) cuEventElapsedTime;

  int version = 0;  ///< of CUDA that the driver supports: 1000 * major + 10 * minor

  /// The driver, initialised; nullptr, with the reason in *why_none, where there is none or it refuses to start.
  /// Thread-safe.
  static const CudaDriver* find(std::string* why_none = nullptr);
  /// The same; throws Error(no_device) with the reason.
  static const CudaDriver& get();

  /// Throws Error(driver) with call, code, file and line unless result is CUDA_SUCCESS.
  void check(CUresult result, const char* call, const CallingLine& where = CallingLine::current()) const;
  /// The text of check()'s exception.
  std::string describe(CUresult result, const char* call, const CallingLine& where = CallingLine::current()) const;
};

/// "12.8" of 12080.
std::string cuda_version_text(int version);

/// The CUDA version that the installed driver supports, 1000 * major + 10 * minor; 0 where there is no driver. Starts
/// no GPU.
int cuda_driver_version();

}  // namespace attune
