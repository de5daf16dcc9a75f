#pragma once

#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "generator/error.h"
#include "runtime/device.h"
#include "runtime/system/state_mutex.h"

namespace attune::testing {

/// A device that runs nothing and remembers everything: for tests of who is compiled and what is launched.
class FakeDevice final : public Device {
 public:
  struct Launch {
    std::string entry;
    std::uint32_t grid_x = 0;
    std::vector<std::byte> arguments;
    Stream stream = nullptr;
  };
  struct Kernel final : CompiledKernel {
    std::string entry;
  };

  explicit FakeDevice(DeviceSpec spec) : spec_(std::move(spec)) {}

  std::vector<KernelLaunch> compiled;
  std::vector<Launch> launched;
  bool capturing = false;
  std::vector<std::string> refused;               // kernels whose source holds one of these texts do not compile
  ErrorCode refusal = ErrorCode::compile_failed;  // of those
  std::function<void(const KernelLaunch&)> while_compiling = [](const KernelLaunch&) {};

  const DeviceSpec& spec() const override { return spec_; }
  KernelTarget target() const override { return KernelTarget::cuda; }
  std::string description() const override { return "fake"; }
  Toolchain toolchain() const override { return {"none", "none"}; }
  std::shared_ptr<const CompiledKernel> compile(const KernelLaunch& launch) override {
    for (const std::string& text : refused) {
      if (launch.source.find(text) != std::string::npos) throw Error(refusal, "refused: " + text);
    }
    while_compiling(launch);
    {
      const std::lock_guard lock(compiled_mutex_);
      compiled.push_back(launch);
    }
    auto kernel = std::make_shared<Kernel>();
    kernel->entry = launch.entry;
    return kernel;
  }
  DevicePointer allocate(std::size_t bytes) override {
    auto block = std::make_unique<std::byte[]>(bytes);
    const auto pointer = reinterpret_cast<DevicePointer>(block.get());
    blocks_[pointer] = std::move(block);
    return pointer;
  }
  void free(DevicePointer pointer) noexcept override { blocks_.erase(pointer); }
  std::size_t free_bytes() const override { return 0; }
  void copy_to_device(DevicePointer to, const void* from, std::size_t bytes) override {
    std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  }
  void copy_from_device(void* to, DevicePointer from, std::size_t bytes) override {
    std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  }
  void fill(DevicePointer to, std::uint8_t value, std::size_t bytes, Stream) override {
    std::memset(reinterpret_cast<void*>(to), value, bytes);
  }
  void launch(const CompiledKernel& kernel, std::uint32_t grid_x, const void* arguments, std::size_t bytes,
              Stream stream) override {
    const auto* first = static_cast<const std::byte*>(arguments);
    launched.push_back({static_cast<const Kernel&>(kernel).entry, grid_x, {first, first + bytes}, stream});
  }
  void synchronize(Stream) override {}
  // What was asked for: the launch that reads the map is only remembered.
  void encode_tensor_map(const TensorMapRequest& request, void* to) const override {
    if (spec_.compute_major < 9) return Device::encode_tensor_map(request, to);
    std::memset(to, 0, kTensorMapBytes);
    auto* next = static_cast<std::byte*>(to);
    const auto put = [&](const auto& value) {
      std::memcpy(next, &value, sizeof(value));
      next += sizeof(value);
    };
    put(request.address);
    put(request.dims);
    put(request.strides_bytes);
    put(request.box);
    put(request.swizzle_bytes);
  }
  bool is_capturing(Stream) const override { return capturing; }
  bool can_time() const override { return false; }

 private:
  DeviceSpec spec_;
  StateMutex compiled_mutex_;
  std::map<DevicePointer, std::unique_ptr<std::byte[]>> blocks_;
};

}  // namespace attune::testing
