/* A libcuda.so.1 of two GPUs that run nothing: memory is the host's, launches are counted. Contexts are kept track of,
 * so that a test can make one of its own current, and captures into graphs, as fake_cuda.h tells. */
#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* cuda.h of CUDA 13 means a newer function by the name. */
#undef cuEventElapsedTime

#define EXPORT __attribute__((visibility("default")))
enum { kDevices = 2, kDepth = 16 };

struct CUctx_st {
  CUdevice device;
};
static struct CUctx_st primary[kDevices] = {{0}, {1}}, own[kDevices] = {{0}, {1}};
static int retained[kDevices];
static unsigned launches;
static _Thread_local CUcontext stack[kDepth];
static _Thread_local int depth;

EXPORT CUcontext fake_cuda_primary(int device) { return &primary[device]; }
EXPORT CUcontext fake_cuda_own(int device) { return &own[device]; }
EXPORT void fake_cuda_set_current(CUcontext context) { depth = 1, stack[0] = context; }
EXPORT int fake_cuda_retained(int device) { return __atomic_load_n(&retained[device], __ATOMIC_SEQ_CST); }
EXPORT unsigned fake_cuda_launches(void) { return __atomic_load_n(&launches, __ATOMIC_SEQ_CST); }

/* A capture in the global mode ends where a call that may wait for other streams comes from a thread of that mode, which
 * all threads have until they exchange it. Stricter than the driver, all calls are such calls here but those that belong
 * to a launch. */
static int global_captures, global_captures_ended;
static _Thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static int ends_capture(void) {
  if (thread_mode != CU_STREAM_CAPTURE_MODE_GLOBAL) return 0;
  if (__atomic_load_n(&global_captures, __ATOMIC_SEQ_CST) == 0) return 0;
  __atomic_store_n(&global_captures_ended, 1, __ATOMIC_SEQ_CST);
  return 1;
}
#define WAITS                                                        \
  do {                                                               \
    if (ends_capture()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; \
  } while (0)

EXPORT void fake_cuda_begin_capture(void) {
  __atomic_store_n(&global_captures_ended, 0, __ATOMIC_SEQ_CST);
  __atomic_add_fetch(&global_captures, 1, __ATOMIC_SEQ_CST);
}
EXPORT int fake_cuda_end_capture(void) {
  __atomic_sub_fetch(&global_captures, 1, __ATOMIC_SEQ_CST);
  return !__atomic_load_n(&global_captures_ended, __ATOMIC_SEQ_CST);
}
EXPORT CUstreamCaptureMode fake_cuda_thread_mode(void) { return thread_mode; }
EXPORT CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  const CUstreamCaptureMode before = thread_mode;
  thread_mode = *mode;
  return *mode = before, CUDA_SUCCESS;
}

EXPORT CUresult cuInit(unsigned flags) { return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; }
EXPORT CUresult cuDriverGetVersion(int* version) { return *version = 13000, CUDA_SUCCESS; }
EXPORT CUresult cuGetErrorName(CUresult error, const char** name) {
  return *name = error == CUDA_SUCCESS ? "CUDA_SUCCESS" : "CUDA_ERROR_FAKE", CUDA_SUCCESS;
}
EXPORT CUresult cuGetErrorString(CUresult error, const char** text) { return cuGetErrorName(error, text); }

EXPORT CUresult cuDeviceGetCount(int* count) {
  WAITS;
  return *count = kDevices, CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  WAITS;
  if (ordinal < 0 || ordinal >= kDevices) return CUDA_ERROR_INVALID_DEVICE;
  return *device = ordinal, CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  WAITS;
  (void)device;
  return snprintf(name, (size_t)length, "NVIDIA A100-SXM4-80GB"), CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  WAITS;
  (void)device;
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return *value = 8, CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      return *value = 0, CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return *value = 108, CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      return *value = 166912, CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      return *value = 167936, CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK:
      return *value = 1024, CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
      return *value = 65536, CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      return *value = 2048, CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
      return *value = 32, CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      return *value = 40 << 20, CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}
EXPORT CUresult cuDeviceGetPCIBusId(char* id, int length, CUdevice device) {
  return snprintf(id, (size_t)length, "0000:%02x:00.0", device), CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  WAITS;
  (void)device;
  return *bytes = (size_t)80 << 30, CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  WAITS;
  __atomic_add_fetch(&retained[device], 1, __ATOMIC_SEQ_CST);
  return *context = &primary[device], CUDA_SUCCESS;
}
EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  WAITS;
  __atomic_sub_fetch(&retained[device], 1, __ATOMIC_SEQ_CST);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  WAITS;
  return *flags = 0, *active = fake_cuda_retained(device) > 0, CUDA_SUCCESS;
}
EXPORT CUresult cuCtxGetCurrent(CUcontext* context) {
  return *context = depth > 0 ? stack[depth - 1] : NULL, CUDA_SUCCESS;
}
EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context) {
  if (depth == kDepth) return CUDA_ERROR_INVALID_CONTEXT;
  return stack[depth++] = context, CUDA_SUCCESS;
}
EXPORT CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  if (depth == 0) return CUDA_ERROR_INVALID_CONTEXT;
  return *context = stack[--depth], CUDA_SUCCESS;
}
EXPORT CUresult cuCtxGetDevice(CUdevice* device) {
  if (depth == 0 || stack[depth - 1] == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  return *device = stack[depth - 1]->device, CUDA_SUCCESS;
}

/* What needs the primary context of a device fails in another one, as a real driver's handles do. */
static int in_primary(void) {
  return depth > 0 && stack[depth - 1] >= primary && stack[depth - 1] < primary + kDevices;
}

EXPORT CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  WAITS;
  if (!in_primary()) return CUDA_ERROR_INVALID_CONTEXT;
  if (memcmp(image, "fake cubin", 10) != 0) return CUDA_ERROR_INVALID_IMAGE;
  return *module = malloc(1), *module != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
EXPORT CUresult cuModuleUnload(CUmodule module) {
  WAITS;
  return free(module), CUDA_SUCCESS;
}
EXPORT CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  WAITS;
  (void)name;
  return *function = (CUfunction)(void*)module, CUDA_SUCCESS;
}
EXPORT CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  WAITS;
  (void)function, (void)attribute, (void)value;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
  WAITS;
  (void)function, (void)attribute;
  return *value = 0, CUDA_SUCCESS;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* pointer, size_t bytes) {
  WAITS;
  void* block = NULL;
  if (!in_primary()) return CUDA_ERROR_INVALID_CONTEXT;
  if (posix_memalign(&block, 256, bytes) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  return *pointer = (CUdeviceptr)(uintptr_t)block, CUDA_SUCCESS;
}
EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer) {
  WAITS;
  return free((void*)(uintptr_t)pointer), CUDA_SUCCESS;
}
EXPORT CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
  WAITS;
  return *free_bytes = *total = (size_t)80 << 30, CUDA_SUCCESS;
}
EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  WAITS;
  return memcpy((void*)(uintptr_t)to, from, bytes), CUDA_SUCCESS;
}
EXPORT CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  WAITS;
  return memcpy(to, (const void*)(uintptr_t)from, bytes), CUDA_SUCCESS;
}
EXPORT CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream) {
  (void)stream;
  return memset((void*)(uintptr_t)to, value, bytes), CUDA_SUCCESS;
}

EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                               unsigned bz, unsigned shared, CUstream stream, void** parameters, void** extra) {
  (void)function, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)stream;
  (void)parameters, (void)extra;
  if (!in_primary()) return CUDA_ERROR_INVALID_CONTEXT;
  __atomic_add_fetch(&launches, 1, __ATOMIC_SEQ_CST);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuStreamSynchronize(CUstream stream) {
  WAITS;
  return (void)stream, CUDA_SUCCESS;
}
EXPORT CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  (void)stream;
  return *status = CU_STREAM_CAPTURE_STATUS_NONE, CUDA_SUCCESS;
}
EXPORT CUresult cuEventCreate(CUevent* event, unsigned flags) {
  WAITS;
  return (void)flags, *event = NULL, CUDA_SUCCESS;
}
EXPORT CUresult cuEventDestroy_v2(CUevent event) {
  WAITS;
  return (void)event, CUDA_SUCCESS;
}
EXPORT CUresult cuEventRecord(CUevent event, CUstream stream) { return (void)event, (void)stream, CUDA_SUCCESS; }
EXPORT CUresult cuEventSynchronize(CUevent event) {
  WAITS;
  return (void)event, CUDA_SUCCESS;
}
EXPORT CUresult cuEventElapsedTime(float* milliseconds, CUevent begin, CUevent end) {
  (void)begin, (void)end;
  return *milliseconds = 0, CUDA_SUCCESS;
}
