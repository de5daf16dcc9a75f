#include "runtime/cuda/cuda_device.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <typeinfo>
#include <utility>

#include "attune/log.h"
#include "generator/error.h"
#include "generator/lazy_value.h"
#include "runtime/cuda/context_scope.h"
#include "runtime/cuda/cubin_cache.h"
#include "runtime/cuda/cuda_device_info.h"
#include "runtime/cuda/cuda_driver.h"
#include "runtime/cuda/kernel_source.h"
#include "runtime/cuda/nvrtc_compiler.h"
#include "runtime/system/activity_mutex.h"
#include "runtime/system/state_mutex.h"

namespace attune {
namespace {

// Above this many bytes a kernel must ask for its dynamic shared memory.
constexpr std::size_t kSharedBytesWithoutOptIn = 48 * 1024;

// A primary context, retained until the process ends: code and memory of other libraries live in it too.
class CudaDevice final : public Device, public std::enable_shared_from_this<CudaDevice> {
 public:
  CudaDevice(const CudaDriver& driver, int ordinal) : driver_(driver), ordinal_(ordinal) {
    const RelaxedCapture relaxed(driver_);
    driver_.check(driver_.cuDeviceGet(&device_, ordinal), "cuDeviceGet");
    driver_.check(driver_.cuDevicePrimaryCtxRetain(&context_, device_), "cuDevicePrimaryCtxRetain");
    spec_ = spec_of(driver_, device_);
  }

  const DeviceSpec& spec() const override { return spec_; }
  KernelTarget target() const override { return KernelTarget::cuda; }
  std::string description() const override { return "cuda:" + std::to_string(ordinal_) + " " + spec_.name; }
  NodeGpu node_gpu() const override { return find_node_gpu(ordinal_); }
  Toolchain toolchain() const override { return {nvrtc_identity(), "CUDA " + cuda_version_text(driver_.version)}; }

  std::shared_ptr<const CompiledKernel> compile(const KernelLaunch& launch) override;

  DevicePointer allocate(std::size_t bytes) override {
    const RelaxedScope scope = enter_relaxed();
    CUdeviceptr pointer = 0;
    const CUresult result = driver_.cuMemAlloc(&pointer, bytes);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
      throw Error(ErrorCode::driver, "out of memory on " + description() + ": " + std::to_string(bytes) +
                                         " bytes were asked for, " + std::to_string(free_bytes()) + " are free; " +
                                         driver_.describe(result, "cuMemAlloc"));
    }
    driver_.check(result, "cuMemAlloc");
    return pointer;
  }
  void free(DevicePointer pointer) noexcept override {
    try {
      const RelaxedScope scope = enter_relaxed();
      driver_.cuMemFree(pointer);
    } catch (const Error&) {
      // The context is gone, and the memory with it.
    }
  }
  std::size_t free_bytes() const override {
    const RelaxedScope scope = enter_relaxed();
    std::size_t free = 0, total = 0;
    driver_.check(driver_.cuMemGetInfo(&free, &total), "cuMemGetInfo");
    return free;
  }
  void copy_to_device(DevicePointer to, const void* from, std::size_t bytes) override {
    const RelaxedScope scope = enter_relaxed();
    driver_.check(driver_.cuMemcpyHtoD(to, from, bytes), "cuMemcpyHtoD");
    // A copy from pageable memory returns when the source was read, possibly before it arrived.
    driver_.check(driver_.cuStreamSynchronize(nullptr), "cuStreamSynchronize after cuMemcpyHtoD");
  }
  void copy_from_device(void* to, DevicePointer from, std::size_t bytes) override {
    const RelaxedScope scope = enter_relaxed();
    driver_.check(driver_.cuMemcpyDtoH(to, from, bytes), "cuMemcpyDtoH");
  }
  void fill(DevicePointer to, std::uint8_t value, std::size_t bytes, Stream stream) override {
    const ContextScope scope = enter();
    driver_.check(driver_.cuMemsetD8Async(to, value, bytes, static_cast<CUstream>(stream)), "cuMemsetD8Async");
  }

  void launch(const CompiledKernel& kernel, std::uint32_t grid_x, const void* arguments, std::size_t bytes,
              Stream stream) override;

  void encode_tensor_map(const TensorMapRequest& request, void* to) const override;

  void synchronize(Stream stream) override {
    const RelaxedScope scope = enter_relaxed();
    driver_.check(driver_.cuStreamSynchronize(static_cast<CUstream>(stream)), "cuStreamSynchronize");
  }
  bool is_capturing(Stream stream) const override {
    const ContextScope scope = enter();
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUresult result = driver_.cuStreamIsCapturing(static_cast<CUstream>(stream), &status);
    // The legacy default stream must not even be asked while another stream captures in the global mode.
    if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) return true;
    driver_.check(result, "cuStreamIsCapturing");
    return status != CU_STREAM_CAPTURE_STATUS_NONE;
  }
  bool can_time() const override { return true; }

  ContextScope enter() const { return ContextScope(driver_, context_); }
  RelaxedScope enter_relaxed() const { return RelaxedScope(driver_, context_); }
  const CudaDriver& driver() const { return driver_; }

 private:
  std::shared_ptr<const CompiledKernel> load_packed(const KernelLaunch& launch, PackedKernel packed);
  std::shared_ptr<const CompiledKernel> loaded(CUmodule module, const KernelLaunch& launch, KernelResources resources);

  const CudaDriver& driver_;
  int ordinal_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  DeviceSpec spec_;
  CubinCache cache_;
};

class CudaKernel final : public CompiledKernel {
 public:
  CudaKernel(std::shared_ptr<CudaDevice> device, CUmodule module, const KernelLaunch& launch, KernelResources resources)
      : device_(std::move(device)),
        module_(module),
        threads_(static_cast<unsigned>(launch.threads)),
        shared_bytes_(static_cast<unsigned>(launch.shared_bytes)),
        cluster_(static_cast<unsigned>(launch.cluster)),
        programmatic_launch_(launch.programmatic_launch),
        argument_bytes_(launch.arguments.bytes) {
    resources_ = std::move(resources);
  }
  ~CudaKernel() override {
    try {
      const RelaxedScope scope = device_->enter_relaxed();
      device_->driver().cuModuleUnload(module_);
    } catch (const Error&) {
      // The context is gone, and the module with it.
    }
  }

  // Finds the entry and asks for its shared memory; the context is current.
  void prepare(const CudaDriver& driver, const std::string& entry) {
    driver.check(driver.cuModuleGetFunction(&function_, module_, entry.c_str()), "cuModuleGetFunction");
    if (shared_bytes_ > kSharedBytesWithoutOptIn) {
      driver.check(driver.cuFuncSetAttribute(function_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                             static_cast<int>(shared_bytes_)),
                   "cuFuncSetAttribute(MAX_DYNAMIC_SHARED_SIZE_BYTES)");
    }
  }

  bool belongs_to(const CudaDevice& device) const { return device_.get() == &device; }
  CUfunction function() const { return function_; }
  unsigned threads() const { return threads_; }
  unsigned shared_bytes() const { return shared_bytes_; }
  unsigned cluster() const { return cluster_; }
  bool programmatic_launch() const { return programmatic_launch_; }
  std::size_t argument_bytes() const { return argument_bytes_; }

 private:
  std::shared_ptr<CudaDevice> device_;
  CUmodule module_;
  CUfunction function_ = nullptr;
  unsigned threads_, shared_bytes_, cluster_;
  bool programmatic_launch_;
  std::size_t argument_bytes_;
};

// Whether loading anew code can help: the image itself was refused, not the memory or the context.
bool refuses_image(CUresult result) {
  return result == CUDA_ERROR_INVALID_IMAGE || result == CUDA_ERROR_INVALID_SOURCE ||
         result == CUDA_ERROR_NO_BINARY_FOR_GPU || result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION ||
         result == CUDA_ERROR_NOT_FOUND || result == CUDA_ERROR_INVALID_VALUE;
}

std::shared_ptr<const CompiledKernel> CudaDevice::loaded(CUmodule module, const KernelLaunch& launch,
                                                         KernelResources resources) {
  const RelaxedScope scope = enter_relaxed();
  auto kernel = std::make_shared<CudaKernel>(shared_from_this(), module, launch, std::move(resources));
  kernel->prepare(driver_, launch.entry);
  return kernel;
}

// What was named to be used is used or an error: nothing is compiled in its place.
std::shared_ptr<const CompiledKernel> CudaDevice::load_packed(const KernelLaunch& launch, PackedKernel packed) {
  const RelaxedScope scope = enter_relaxed();
  CUmodule module = nullptr;
  const CUresult result = driver_.cuModuleLoadData(&module, packed.compiled.image.data());
  if (result != CUDA_SUCCESS) {
    throw Error(
        ErrorCode::driver,
        "kernel " + launch.entry + " of " + packed.origin + " does not load on " + description() +
            ", whose driver supports CUDA " + cuda_version_text(driver_.version) +
            (refuses_image(result) ? ": update the driver, or make the pack with an NVRTC that is no newer" : "") +
            ": " + driver_.describe(result, "cuModuleLoadData"));
  }
  return loaded(module, launch, std::move(packed.compiled.resources));
}

std::shared_ptr<const CompiledKernel> CudaDevice::compile(const KernelLaunch& launch) {
  require_unforked_cuda();  // before anything is compiled for nothing
  if (const std::shared_ptr<const KernelSource> source = kernel_source()) {
    if (std::optional<PackedKernel> packed = source->find(launch)) return load_packed(launch, std::move(*packed));
  }
  CompiledText compiled = cache_.get(launch);
  CUmodule module = nullptr;
  const auto load = [&] {
    const RelaxedScope scope = enter_relaxed();
    return driver_.cuModuleLoadData(&module, compiled.image.data());
  };
  CUresult result = load();
  if (refuses_image(result) && compiled.resources.from_cache) {
    log(LogLevel::info, "the cached cubin of kernel " + launch.entry + " does not load on " + description() +
                            " and is compiled again: " + driver_.describe(result, "cuModuleLoadData"));
    compiled = cache_.rebuild(launch);
    result = load();
  }
  if (result != CUDA_SUCCESS) {
    throw Error(ErrorCode::driver, "kernel " + launch.entry + " for " + launch.arch + " does not load on " +
                                       description() + ": " + driver_.describe(result, "cuModuleLoadData"));
  }
  return loaded(module, launch, std::move(compiled.resources));
}

void CudaDevice::launch(const CompiledKernel& compiled, std::uint32_t grid_x, const void* arguments, std::size_t bytes,
                        Stream stream) {
  if (typeid(compiled) != typeid(CudaKernel) || !static_cast<const CudaKernel&>(compiled).belongs_to(*this)) {
    throw Error(ErrorCode::internal, "a kernel that another device compiled was given to " + description());
  }
  const auto& kernel = static_cast<const CudaKernel&>(compiled);
  if (bytes != kernel.argument_bytes()) {
    throw Error(ErrorCode::internal, "a kernel was given " + std::to_string(bytes) + " bytes of arguments, it takes " +
                                         std::to_string(kernel.argument_bytes()));
  }
  const ContextScope scope = enter();
  void* parameters[] = {const_cast<void*>(arguments)};
  std::array<CUlaunchAttribute, 2> attributes = {};
  unsigned used = 0;
  if (kernel.cluster() > 1) {
    CUlaunchAttribute& cluster = attributes[used++];
    cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    cluster.value.clusterDim = {kernel.cluster(), 1, 1};
  }
  // An older driver starts it when the launch before has ended, and its wait returns at once.
  if (kernel.programmatic_launch() && driver_.cuLaunchKernelEx != nullptr) {
    CUlaunchAttribute& programmatic = attributes[used++];
    programmatic.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    programmatic.value.programmaticStreamSerializationAllowed = 1;
  }
  if (used > 0) {
    CUlaunchConfig config = {};
    config.gridDimX = grid_x;
    config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = kernel.threads();
    config.blockDimY = config.blockDimZ = 1;
    config.sharedMemBytes = kernel.shared_bytes();
    config.hStream = static_cast<CUstream>(stream);
    config.attrs = attributes.data();
    config.numAttrs = used;
    driver_.check(driver_.cuLaunchKernelEx(&config, kernel.function(), parameters, nullptr), "cuLaunchKernelEx");
    return;
  }
  driver_.check(driver_.cuLaunchKernel(kernel.function(), grid_x, 1, 1, kernel.threads(), 1, 1, kernel.shared_bytes(),
                                       static_cast<CUstream>(stream), parameters, nullptr),
                "cuLaunchKernel");
}

CUtensorMapDataType data_type_of(ElementType element) {
  switch (element) {
    case ElementType::boolean:
      return CU_TENSOR_MAP_DATA_TYPE_UINT8;
    case ElementType::int32:
      return CU_TENSOR_MAP_DATA_TYPE_INT32;
    case ElementType::int64:
      return CU_TENSOR_MAP_DATA_TYPE_INT64;
    case ElementType::fp16:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case ElementType::bf16:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case ElementType::fp32:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  }
  throw Error(ErrorCode::internal, "tensor maps know no element type " + std::to_string(static_cast<int>(element)));
}

void CudaDevice::encode_tensor_map(const TensorMapRequest& request, void* to) const {
  if (driver_.cuTensorMapEncodeTiled == nullptr) {
    throw Error(ErrorCode::unsupported, "the NVIDIA driver supports CUDA " + cuda_version_text(driver_.version) +
                                            " and cannot make tensor maps, which need 12.0: update it");
  }
  static_assert(sizeof(CUtensorMap) == kTensorMapBytes);
  const ContextScope scope = enter();
  CUtensorMap map;  // aligned as the driver wants it; an argument struct on the host may be aligned to less
  constexpr cuuint32_t kEveryElement[] = {1, 1, 1, 1, 1};
  cuuint64_t dims[5], strides[4];
  std::copy(request.dims.begin(), request.dims.end(), dims);
  std::copy(request.strides_bytes.begin(), request.strides_bytes.end(), strides);
  const CUtensorMapSwizzle swizzle = request.swizzle_bytes == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                                     : request.swizzle_bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                     : request.swizzle_bytes == 32 ? CU_TENSOR_MAP_SWIZZLE_32B
                                                                   : CU_TENSOR_MAP_SWIZZLE_NONE;
  const CUresult result = driver_.cuTensorMapEncodeTiled(
      &map, data_type_of(request.element), static_cast<cuuint32_t>(request.rank),
      reinterpret_cast<void*>(request.address), dims, strides, request.box.data(), kEveryElement,
      CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    const auto list = [](const auto& values, int count) {
      std::string text;
      for (int i = 0; i < count; ++i)
        text += (i == 0 ? "" : ", ") + std::to_string(values[static_cast<std::size_t>(i)]);
      return text;
    };
    throw Error(result == CUDA_ERROR_INVALID_VALUE ? ErrorCode::invalid_argument : ErrorCode::driver,
                "no tensor map of a tensor of (" + list(request.dims, request.rank) + ") elements with strides of (" +
                    list(request.strides_bytes, request.rank - 1) + ") bytes in boxes of (" +
                    list(request.box, request.rank) + "): " + driver_.describe(result, "cuTensorMapEncodeTiled"));
  }
  std::memcpy(to, &map, sizeof(map));
}

// One at a time makes a device. Never destroyed: a primary context outlives every static object that may still hold its
// memory.
struct OpenDevices {
  StateMutex mutex;
  std::map<int, std::shared_ptr<CudaDevice>> devices;

  std::shared_ptr<CudaDevice> find(int ordinal) {
    const std::lock_guard lock(mutex);
    const auto found = devices.find(ordinal);
    return found == devices.end() ? nullptr : found->second;
  }
};

constinit ActivityMutex opening_device;
constinit LazyValue<OpenDevices> open_devices;

}  // namespace

std::shared_ptr<Device> open_cuda_device(int ordinal) {
  const CudaDriver& driver = CudaDriver::get();
  OpenDevices& open = open_devices.get();
  if (std::shared_ptr<CudaDevice> device = open.find(ordinal)) return device;
  int count = 0;
  {
    const RelaxedCapture relaxed(driver);
    driver.check(driver.cuDeviceGetCount(&count), "cuDeviceGetCount");
  }
  if (ordinal < 0 || ordinal >= count) {
    throw Error(ErrorCode::no_device, "there is no GPU cuda:" + std::to_string(ordinal) + "; the driver sees " +
                                          std::to_string(count) + " (cuda:0 to cuda:" + std::to_string(count - 1) +
                                          ")");
  }
  const ActivityMutex::Lock making(opening_device);
  if (std::shared_ptr<CudaDevice> device = open.find(ordinal)) return device;  // another thread was first
  auto device = std::make_shared<CudaDevice>(driver, ordinal);
  const std::lock_guard lock(open.mutex);
  open.devices.emplace(ordinal, device);
  return device;
}

std::shared_ptr<Device> current_cuda_device() { return open_cuda_device(current_cuda_ordinal()); }

struct CudaTimer::State {
  std::shared_ptr<CudaDevice> device;
  CUstream stream = nullptr;
  CUevent begin = nullptr, end = nullptr;
};

CudaTimer::CudaTimer(const std::shared_ptr<Device>& device, Stream stream) : state_(std::make_unique<State>()) {
  state_->device = std::dynamic_pointer_cast<CudaDevice>(device);
  if (state_->device == nullptr)
    throw Error(ErrorCode::internal, "CudaTimer needs a CUDA device, not " + device->description());
  state_->stream = static_cast<CUstream>(stream);
  const CudaDriver& driver = state_->device->driver();
  const RelaxedScope scope = state_->device->enter_relaxed();
  driver.check(driver.cuEventCreate(&state_->begin, CU_EVENT_DEFAULT), "cuEventCreate");
  driver.check(driver.cuEventCreate(&state_->end, CU_EVENT_DEFAULT), "cuEventCreate");
}

CudaTimer::~CudaTimer() {
  try {
    const RelaxedScope scope = state_->device->enter_relaxed();
    state_->device->driver().cuEventDestroy(state_->begin);
    state_->device->driver().cuEventDestroy(state_->end);
  } catch (const Error&) {
    // The context is gone, and the events with it.
  }
}

void CudaTimer::start() {
  const ContextScope scope = state_->device->enter();
  state_->device->driver().check(state_->device->driver().cuEventRecord(state_->begin, state_->stream),
                                 "cuEventRecord");
}

void CudaTimer::stop() {
  const ContextScope scope = state_->device->enter();
  state_->device->driver().check(state_->device->driver().cuEventRecord(state_->end, state_->stream), "cuEventRecord");
}

double CudaTimer::microseconds() {
  const CudaDriver& driver = state_->device->driver();
  const RelaxedScope scope = state_->device->enter_relaxed();
  driver.check(driver.cuEventSynchronize(state_->end), "cuEventSynchronize");
  float milliseconds = 0;
  driver.check(driver.cuEventElapsedTime(&milliseconds, state_->begin, state_->end), "cuEventElapsedTime");
  return 1e3 * milliseconds;
}

}  // namespace attune
