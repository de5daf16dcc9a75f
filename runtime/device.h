#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "generator/device/device_spec.h"
#include "generator/error.h"
#include "generator/plan/kernel_plan.h"
#include "generator/problem/element_type.h"
#include "runtime/system/node_gpu.h"

namespace attune {

/// Address in a device's memory: a CUdeviceptr, or a host address on the emulator.
using DevicePointer = std::uint64_t;
/// A CUstream, or nullptr for the default stream (and always on the emulator).
using Stream = void*;

/// What the compiler and the loader said about a kernel.
struct KernelResources {
  int registers = 0;    ///< per thread
  int spill_bytes = 0;  ///< spill stores + loads per thread
  int stack_bytes = 0;
  std::size_t shared_bytes = 0;         ///< dynamic
  std::vector<std::string> advisories;  ///< lines of the log about serialized or ignored instructions
  std::string log;                      ///< the whole compile log
  double compile_ms = 0;                ///< as measured when it was compiled
  bool from_cache = false;
};

/// Loaded code, ready to launch on the device that compiled it. Immutable, shared between threads; holds the device
/// alive.
class CompiledKernel {
 public:
  virtual ~CompiledKernel() = default;
  const KernelResources& resources() const { return resources_; }

 protected:
  KernelResources resources_;
};

/// What a measurement's time depends on beside the config.
struct Toolchain {
  std::string compiler;  ///< "NVRTC 13.0 (build id ...)", or the host compiler on the emulator
  std::string driver;    ///< driver's CUDA version, or "emulator"
};

/// A tensor (dim, head, row, batch), or (dim, head, row, size, batch) as TensorMapSpec::ends_with_rows has it, dim
/// contiguous, for the tensor memory accelerator, and the box of it that one copy moves.
struct TensorMapRequest {
  DevicePointer address = 0;  ///< of its first element; a multiple of 16
  ElementType element = ElementType::bf16;
  int rank = 4;  ///< how many dimensions it has; numbers of others say nothing
  std::array<std::uint64_t, 5> dims{};
  std::array<std::uint64_t, 4> strides_bytes{};  ///< of the dimensions behind the first; multiples of 16
  std::array<std::uint32_t, 5> box{};            ///< in elements, at most 256 along each dim
  int swizzle_bytes = 0;                         ///< 0, 32, 64, 128
};
constexpr std::size_t kTensorMapBytes = 128;

/// Where plans run. Two implementations: CudaDevice, EmulatorDevice. All functions are safe to call from several
/// threads and throw Error; none ends the process. Pointers are only meaningful to the device that allocated them.
class Device {
 public:
  virtual ~Device() = default;

  virtual const DeviceSpec& spec() const = 0;
  virtual KernelTarget target() const = 0;
  virtual std::string description() const = 0;  ///< for people: "cuda:0 NVIDIA H200", "emulator of h200"
  virtual Toolchain toolchain() const = 0;
  virtual NodeGpu node_gpu() const { return {}; }  ///< unknown on the emulator

  /// Compiles (or takes from the cubin cache) and loads. Throws Error(compile_failed) with the log,
  /// Error(nvrtc_unavailable).
  virtual std::shared_ptr<const CompiledKernel> compile(const KernelLaunch& launch) = 0;

  /// At least 256-byte aligned. Throws Error(driver) when memory runs out, naming the bytes asked for and those free.
  virtual DevicePointer allocate(std::size_t bytes) = 0;
  virtual void free(DevicePointer pointer) noexcept = 0;
  virtual std::size_t free_bytes() const = 0;
  virtual void copy_to_device(DevicePointer to, const void* from, std::size_t bytes) = 0;  ///< synchronous
  virtual void copy_from_device(void* to, DevicePointer from, std::size_t bytes) = 0;      ///< synchronous
  virtual void fill(DevicePointer to, std::uint8_t value, std::size_t bytes, Stream stream = nullptr) = 0;

  /// `arguments` holds the kernel's argument struct. Asynchronous on CUDA; on the emulator it returns when the kernel
  /// has ended.
  virtual void launch(const CompiledKernel& kernel, std::uint32_t grid_x, const void* arguments, std::size_t bytes,
                      Stream stream) = 0;
  virtual void synchronize(Stream stream) = 0;

  /// Writes the kTensorMapBytes bytes that a kernel takes as TensorMap. Throws Error(invalid_argument) for what the
  /// accelerator cannot do, Error(unsupported) on a device without one.
  virtual void encode_tensor_map(const TensorMapRequest&, void* /*to*/) const {
    throw Error(ErrorCode::unsupported, description() + " has no tensor memory accelerator");
  }

  /// Whether the stream is being captured into a graph: then nothing may be compiled, loaded or allocated for it.
  /// Beside captures of other threads everything may be.
  virtual bool is_capturing(Stream) const { return false; }

  /// Whether times of this device mean anything. The emulator's do not.
  virtual bool can_time() const = 0;
};

/// Device memory that frees itself. Movable.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(std::shared_ptr<Device> device, std::size_t bytes)
      : device_(std::move(device)), bytes_(bytes), pointer_(bytes ? device_->allocate(bytes) : 0) {}
  DeviceBuffer(DeviceBuffer&& other) noexcept { swap(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~DeviceBuffer() {
    if (pointer_) device_->free(pointer_);
  }

  DevicePointer pointer() const { return pointer_; }
  std::size_t bytes() const { return bytes_; }

 private:
  void swap(DeviceBuffer& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(bytes_, other.bytes_);
    std::swap(pointer_, other.pointer_);
  }
  std::shared_ptr<Device> device_;
  std::size_t bytes_ = 0;
  DevicePointer pointer_ = 0;
};

}  // namespace attune
